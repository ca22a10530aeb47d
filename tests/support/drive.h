// Drives a back end through a list of tokens, as tests need it.
#pragma once

#include <algorithm>
#include <numeric>

#include "backend/backend.h"

namespace lily::test {

/// Logits [n, vocab] of all tokens, fed to `state` in passes of the sizes in `split` (the last repeats); `phase` for each pass.
inline std::vector<float> teacher_forced(Backend& backend, SequenceState& state, std::span<const std::int32_t> ids, int vocab,
                                         std::vector<int> split, plan::Phase phase, const LayerHook& hook = {}) {
  std::vector<float> logits(ids.size() * std::size_t(vocab));
  std::size_t at = 0;
  for (std::size_t i = 0; at < ids.size(); ++i) {
    const std::size_t n = std::min(ids.size() - at, std::size_t(split[std::min(i, split.size() - 1)]));
    Segment segment{.state = &state, .ids = ids.subspan(at, n), .logits_of = std::vector<std::int32_t>(n)};
    std::iota(segment.logits_of.begin(), segment.logits_of.end(), 0);
    backend.run(phase, {&segment, 1}, logits.data() + at * std::size_t(vocab), hook);
    at += n;
  }
  return logits;
}

/// The continuation of `prompt` by the largest logit, `count` tokens or up to one of `ends` (included).
inline std::vector<std::int32_t> greedy(Backend& backend, std::span<const std::int32_t> prompt, int vocab, int count,
                                        std::span<const std::int32_t> ends = {}) {
  SequenceState state(backend.state_layout());
  std::vector<float> logits((std::size_t(vocab)));
  for (std::size_t at = 0; at < prompt.size();) {
    const std::size_t n = std::min(prompt.size() - at, std::size_t(backend.max_rows()));
    Segment s{.state = &state, .ids = prompt.subspan(at, n), .logits_of = {}};
    if (at + n == prompt.size()) s.logits_of = {std::int32_t(n) - 1};
    backend.run(plan::Phase::prefill, {&s, 1}, logits.data());
    at += n;
  }
  std::vector<std::int32_t> out;
  while (true) {
    out.push_back(std::int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    if (int(out.size()) == count || std::find(ends.begin(), ends.end(), out.back()) != ends.end()) return out;
    Segment s{.state = &state, .ids = {&out.back(), 1}, .logits_of = {0}};
    backend.run(plan::Phase::decode, {&s, 1}, logits.data());
  }
}

}  // namespace lily::test
