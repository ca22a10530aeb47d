#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/sampler.h"

namespace lily {

Session::Session(Engine& engine, std::shared_ptr<PrefixCache> cache)
    : engine_(engine), cache_(std::move(cache)), state_(engine.backend().state_layout()) {
  if (!cache_) cache_ = std::make_shared<PrefixCache>(CacheLimits{.snapshots = engine.options().snapshots});
}

std::int64_t Session::room() const {
  return engine_.max_context() - std::int64_t(tokens_.size());
}

std::int64_t Session::own_bytes() const {
  std::int64_t bytes = state_.layout.recurrent_bytes() + std::int64_t(engine_.shape().vocab) * 4;
  for (const auto& block : state_.blocks)
    if (block.use_count() == 1) bytes += block->bytes();
  return bytes;
}

void Session::reset() {
  state_.reset();
  tokens_.clear();
  logits_.clear();
  prompt_.clear();
}

void Session::drop_everything() {
  cache_->forget(tokens_);
  cache_->forget(prompt_);
  reset();
}

SyncReport Session::sync(std::span<const std::int32_t> ids, const SyncOptions& options) {
  const SyncReport report = begin({ids.begin(), ids.end()}, options.snapshot_at);
  const auto total = std::int64_t(ids.size());
  while (true) {
    if (options.progress && !options.progress(state_.length, total)) {
      throw Error(ErrorCode::cancelled, fmt::format("cancelled after {} of {} prompt tokens", state_.length, total));
    }
    if (to_read() == 0) return report;
    advance();
  }
}

SyncReport Session::begin(std::vector<std::int32_t> ids, std::vector<std::int64_t> snapshot_at) {
  const auto total = std::int64_t(ids.size());
  if (ids.empty()) throw Error(ErrorCode::invalid_argument, "the prompt is empty");
  engine_.check_ids(ids);
  if (total >= engine_.max_context()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the prompt has {} tokens, and the context window of {} must hold it and an answer", total,
                            engine_.max_context()));
  }
  SyncReport report;
  report.reused = resume(ids);
  report.computed = total - report.reused;
  prompt_ = std::move(ids);
  stops_ = std::move(snapshot_at);
  if (stops_.empty()) stops_.push_back(total);
  std::erase_if(stops_, [&](std::int64_t at) { return at <= report.reused || at > total; });
  std::sort(stops_.begin(), stops_.end());
  next_stop_ = 0;
  return report;
}

void Session::advance(std::int64_t longest) {
  Session* const self = this;
  if (const std::exception_ptr failed = engine_.read({&self, 1}, longest)[0]) std::rethrow_exception(failed);
}

/// Where a pass must end: the next snapshot's place, or the prompt's end.
std::int64_t Session::next_stop() const {
  return next_stop_ < stops_.size() ? stops_[next_stop_] : std::int64_t(prompt_.size());
}

/// The state has come further in the prompt.
void Session::has_read() {
  tokens_.assign(prompt_.begin(), prompt_.begin() + state_.length);
  if (next_stop_ == stops_.size() || state_.length != stops_[next_stop_]) return;
  keep_snapshot();
  while (next_stop_ < stops_.size() && stops_[next_stop_] == state_.length) ++next_stop_;
}

/// Puts the session at the longest beginning of `ids` that it has a state for; returns its length.
std::int64_t Session::resume(std::span<const std::int32_t> ids) {
  const std::int64_t here = state_.length;
  const auto total = std::int64_t(ids.size());
  const bool extends = here <= total && std::equal(ids.begin(), ids.begin() + here, tokens_.begin()) &&
                       (here < total || !logits_.empty());
  const std::shared_ptr<const Snapshot> snapshot = cache_->deepest(ids);
  if (snapshot && (!extends || std::int64_t(snapshot->ids.size()) > here)) {
    snapshot->restore(state_);
    logits_ = snapshot->logits;
  } else if (!extends) {
    reset();
  }
  tokens_.assign(ids.begin(), ids.begin() + state_.length);
  if (state_.length < total) logits_.clear();
  return state_.length;
}

void Session::keep_snapshot() {
  const std::span<const std::int32_t> absorbed(tokens_.data(), std::size_t(state_.length));
  cache_->keep(std::make_shared<const Snapshot>(absorbed, state_, logits_), prompt_.empty() ? absorbed : prompt_);
}

std::span<const float> Session::logits() {
  if (tokens_.empty()) throw Error(ErrorCode::invalid_argument, "the session has no tokens to predict from");
  if (std::size_t(state_.length) < tokens_.size()) {
    Session* const self = this;
    if (const std::exception_ptr failed = engine_.decode({&self, 1})[0]) std::rethrow_exception(failed);
  }
  if (logits_.empty()) throw Error(ErrorCode::invalid_argument, "the session's prompt was not read to its end");
  return logits_;
}

void Session::require_room() const {
  if (room() <= 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the context window of {} tokens is full", engine_.max_context()));
  }
}

std::int32_t Session::next(Sampler& sampler) {
  require_room();
  const std::int32_t id = sampler.sample(logits());
  append(id);
  sampler.accept(id);
  return id;
}

void Session::append(std::int32_t id) {
  require_room();
  tokens_.push_back(id);
}

void require_finite(std::span<const float> logits) {
  // On the bits: an exponent of all ones is an infinity or a NaN. No branch, so that the compiler vectorises it.
  std::uint32_t bad = 0;
  for (const float x : logits) bad |= std::uint32_t((std::bit_cast<std::uint32_t>(x) & 0x7f800000u) == 0x7f800000u);
  if (!bad) return;
  const auto at = std::find_if(logits.begin(), logits.end(), [](float x) { return !(x - x == 0); });
  throw Error(
      ErrorCode::numerical,
      fmt::format("the logit of token {} is {}: the state of this conversation was dropped", at - logits.begin(), *at));
}

}  // namespace lily
