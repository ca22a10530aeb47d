#include "bench/runner.h"

#include <algorithm>

#include "base/clock.h"
#include "bench/statistics.h"
#include "engine/engine.h"
#include "model/synthetic.h"

namespace lily::bench {

Runner::Runner(Backend& backend, int vocab, int longest) : backend_(backend), logits_(std::size_t(vocab)) {
  const std::vector<int> ids = synthetic_token_ids("bench", longest, vocab);
  ids_.assign(ids.begin(), ids.end());
}

void Runner::pass(plan::Phase phase, SequenceState& state, int rows, bool want_logits) {
  Segment segment{
      .state = &state, .ids = std::span(ids_).subspan(std::size_t(state.length), std::size_t(rows)), .logits_of = {}};
  if (want_logits) segment.logits_of = {rows - 1};
  backend_.run(phase, {&segment, 1}, want_logits ? logits_.data() : nullptr);
}

double Runner::prefill(SequenceState& state, int n, const std::function<void(int)>& told) {
  const auto start = Clock::now();
  while (state.length < n) {
    const int rows = int(next_pass(n - state.length, backend_.max_rows()));
    pass(plan::Phase::prefill, state, rows, state.length + rows == n);
    if (told) told(int(state.length));
  }
  return seconds_since(start);
}

double Runner::decode(SequenceState& state, int steps) {
  state.reserve(state.length + steps);
  const auto start = Clock::now();
  for (int i = 0; i < steps; ++i) pass(plan::Phase::decode, state, 1, true);
  return seconds_since(start);
}

std::string Runner::hash() const {
  require_finite(logits_);
  return logits_hash(logits_);
}

}  // namespace lily::bench
