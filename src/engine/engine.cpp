#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace lily {

Engine::Engine(const Weights& weights, EngineOptions options)
    : Engine(make_backend(weights, options.backend), weights.shape(), options) {}

Engine::Engine(std::unique_ptr<Backend> backend, const ModelShape& shape, EngineOptions options)
    : shape_(shape), options_(std::move(options)), backend_(std::move(backend)), max_context_(options_.max_context) {
  if (max_context_ == 0) max_context_ = shape_.max_context;
  if (max_context_ < 2 || max_context_ > shape_.max_context) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a context window of {} tokens was asked for: this model's is 2 to {}", max_context_,
                            shape_.max_context));
  }
}

std::unique_ptr<Session> Engine::session(std::shared_ptr<PrefixCache> cache) {
  return std::make_unique<Session>(*this, std::move(cache));
}

std::vector<std::exception_ptr> Engine::decode(std::span<Session* const> sessions) {
  std::vector<Share> shares;
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    Session& s = *sessions[i];
    const auto known = std::size_t(s.state_.length);
    if (known < s.tokens_.size())  // else its logits are there
      shares.push_back({i, {.state = &s.state_, .ids = {&s.tokens_[known], 1}, .logits_of = {0}}});
  }
  return run(plan::Phase::decode, sessions, shares);
}

std::vector<std::exception_ptr> Engine::read(std::span<Session* const> sessions, std::int64_t longest) {
  const std::int64_t most = backend_->max_rows();
  std::int64_t left = longest > 0 ? std::min(longest, most) : most;
  std::vector<Share> shares;
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    Session& s = *sessions[i];
    const std::int64_t from = s.state_.length, to_stop = s.next_stop() - from;
    if (i > 0 && to_stop > left) continue;
    const std::int64_t n = i > 0 ? to_stop : next_pass(to_stop, left);
    Segment segment{.state = &s.state_, .ids = std::span(s.prompt_).subspan(std::size_t(from), std::size_t(n)), .logits_of = {}};
    if (n == s.to_read()) segment.logits_of = {std::int32_t(n) - 1};
    shares.push_back({i, std::move(segment)});
    left -= n;
  }
  std::vector<std::exception_ptr> failed = run(plan::Phase::prefill, sessions, shares);
  for (const Share& share : shares) {
    if (failed[share.whose]) continue;
    try {
      sessions[share.whose]->has_read();
    } catch (...) {
      failed[share.whose] = std::current_exception();
    }
  }
  return failed;
}

std::vector<std::exception_ptr> Engine::run(plan::Phase phase, std::span<Session* const> sessions, std::span<const Share> shares) {
  std::vector<std::exception_ptr> failed(sessions.size());
  if (shares.empty()) return failed;
  const auto vocab = std::size_t(shape_.vocab);
  std::vector<Segment> segments;
  std::size_t wanted = 0;
  for (const Share& share : shares) {
    sessions[share.whose]->logits_.clear();  // should the pass fail, nobody takes the old ones for the new
    segments.push_back(share.segment);
    wanted += share.segment.logits_of.size();
  }
  std::exception_ptr pass;
  std::vector<float> rows;
  try {
    rows.resize(wanted * vocab);
    backend_->run(phase, segments, wanted > 0 ? rows.data() : nullptr);
  } catch (...) {
    pass = std::current_exception();
  }
  const float* row = rows.data();
  for (const Share& share : shares) {
    Session& s = *sessions[share.whose];
    try {
      if (pass) std::rethrow_exception(pass);
      if (share.segment.logits_of.empty()) continue;
      s.logits_.assign(row, row + vocab);
      row += vocab;
      require_finite(s.logits_);
    } catch (...) {
      // The state may be half advanced, or hold the NaN itself: nothing of it, nor made from it, is used again.
      failed[share.whose] = std::current_exception();
      s.drop_everything();
    }
  }
  return failed;
}

void Engine::check_ids(std::span<const std::int32_t> ids) const {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= shape_.vocab) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("token id {} at position {} is outside the vocabulary (0 to {})", ids[i], i, shape_.vocab - 1));
    }
  }
}

void Engine::logits(std::span<const std::int32_t> ids, std::span<const int> split, const LogitsSink& sink,
                    const LayerHook& hook) {
  check_ids(ids);
  const auto total = std::int64_t(ids.size());
  if (total > max_context_) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} ids, and the context window holds {} tokens", total, max_context_));
  }
  const std::int64_t longest = std::max(1, backend_->max_rows());
  const std::int64_t modest = std::clamp<std::int64_t>((256 << 20) / (std::int64_t(shape_.vocab) * 4), 2, 512);
  SequenceState state(backend_->state_layout());
  std::vector<float> rows;
  std::size_t size_at = 0;
  for (std::int64_t first = 0; first < total;) {
    const std::int64_t pass = split.empty() ? std::min(longest, modest) : split[std::min(size_at, split.size() - 1)];
    ++size_at;
    const plan::Phase phase = pass == 1 ? plan::Phase::decode : plan::Phase::prefill;
    for (const std::int64_t end = std::min(total, first + pass); first < end;) {
      const auto n = int(std::min(end - first, longest));
      Segment segment{.state = &state, .ids = ids.subspan(first, n), .logits_of = {}};
      for (int i = 0; i < n; ++i) segment.logits_of.push_back(i);
      rows.resize(std::size_t(n) * shape_.vocab);
      backend_->run(phase, {&segment, 1}, rows.data(), hook);
      require_finite(rows);
      sink(first, n, rows.data());
      first += n;
    }
  }
}

}  // namespace lily
