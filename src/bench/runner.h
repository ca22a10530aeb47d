// Lily's side of a run: passes as the engine makes them, over pseudo-random tokens, timed.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace lily::bench {

class Runner {
 public:
  /// `longest` tokens are enough for every run.
  Runner(Backend& backend, int vocab, int longest);

  SequenceState fresh() const { return SequenceState(backend_.state_layout()); }
  /// Reads the tokens up to `n` that `state` has not absorbed, in passes as a session makes them, logits of the
  /// last token alone. Seconds. `told` hears how many tokens are in the state, after each pass.
  double prefill(SequenceState& state, int n, const std::function<void(int)>& told = {});
  /// The next `steps` tokens one by one, logits of each. Seconds. Memory for them is there before the clock runs.
  double decode(SequenceState& state, int steps);
  /// Of the last logits. Error(numerical) when one is not finite.
  std::string hash() const;

 private:
  void pass(plan::Phase phase, SequenceState& state, int rows, bool want_logits);

  Backend& backend_;
  std::vector<std::int32_t> ids_;
  std::vector<float> logits_;
};

}  // namespace lily::bench
