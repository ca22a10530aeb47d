#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/sampler.h"

namespace lily {

Session::Session(Engine& engine)
    : engine_(engine), state_(engine.backend().state_layout()), snapshots_(engine.options().snapshots) {}

std::int64_t Session::room() const {
  return engine_.max_context() - std::int64_t(tokens_.size());
}

void Session::reset() {
  state_.reset();
  tokens_.clear();
  logits_.clear();
}

void Session::drop_everything() {
  reset();
  snapshots_.clear();
}

SyncReport Session::sync(std::span<const std::int32_t> ids, const SyncOptions& options) {
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

  std::vector<std::int64_t> stops = options.snapshot_at;
  std::erase_if(stops, [&](std::int64_t at) { return at <= report.reused || at > total; });
  std::sort(stops.begin(), stops.end());
  if (options.snapshot_at.empty() && report.computed > 0) stops.push_back(total);

  auto stop = stops.begin();
  while (true) {
    if (options.progress && !options.progress(state_.length, total)) {
      throw Error(ErrorCode::cancelled, fmt::format("cancelled after {} of {} prompt tokens", state_.length, total));
    }
    if (state_.length == total) return report;
    const std::int64_t goal = stop != stops.end() ? *stop : total;
    const std::int64_t end = state_.length + next_pass(goal - state_.length, engine_.backend().max_rows());
    read(ids, end, end == total);
    if (stop != stops.end() && end == *stop) {
      keep_snapshot();
      while (stop != stops.end() && *stop == end) ++stop;
    }
  }
}

/// Puts the session at the longest beginning of `ids` that it has a state for; returns its length.
std::int64_t Session::resume(std::span<const std::int32_t> ids) {
  const std::int64_t here = state_.length;
  const auto total = std::int64_t(ids.size());
  const bool extends = here <= total && std::equal(ids.begin(), ids.begin() + here, tokens_.begin()) &&
                       (here < total || !logits_.empty());
  const Snapshot* snapshot = snapshots_.deepest(ids);
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

void Session::read(std::span<const std::int32_t> ids, std::int64_t end, bool want_logits) {
  const std::int64_t begin = state_.length;
  run(plan::Phase::prefill, ids.subspan(begin, end - begin), want_logits);
  tokens_.assign(ids.begin(), ids.begin() + end);
}

void Session::run(plan::Phase phase, std::span<const std::int32_t> ids, bool want_logits) {
  // The old logits go first: should the pass fail, nobody takes them for the new ones.
  logits_.clear();
  Segment segment{.state = &state_, .ids = ids, .logits_of = {}};
  if (want_logits) segment.logits_of = {std::int32_t(ids.size()) - 1};
  try {
    std::vector<float> logits(want_logits ? std::size_t(engine_.shape().vocab) : 0);
    engine_.backend().run(phase, {&segment, 1}, want_logits ? logits.data() : nullptr);
    require_finite(logits);
    logits_ = std::move(logits);
  } catch (...) {
    // The state may be half advanced, or hold the NaN itself: nothing of it, nor made from it, is used again.
    drop_everything();
    throw;
  }
}

void Session::keep_snapshot() {
  snapshots_.keep(tokens_, state_, logits_);
}

std::span<const float> Session::logits() {
  if (tokens_.empty()) throw Error(ErrorCode::invalid_argument, "the session has no tokens to predict from");
  if (const auto known = std::size_t(state_.length); known < tokens_.size()) {
    const std::int32_t pending = tokens_[known];  // run() may drop tokens_ when it fails
    run(plan::Phase::decode, {&pending, 1}, true);
  }
  if (logits_.empty()) throw Error(ErrorCode::invalid_argument, "the session's prompt was not read to its end");
  return logits_;
}

std::int32_t Session::next(Sampler& sampler) {
  if (room() <= 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the context window of {} tokens is full", engine_.max_context()));
  }
  const std::int32_t id = sampler.sample(logits());
  sampler.accept(id);
  tokens_.push_back(id);
  return id;
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
