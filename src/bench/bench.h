// Measures: prefill lengths and decode contexts, Lily in turn with itself without a technique and with another engine.
//
// A row is one phase and one length. All its contenders (Lily; Lily without each technique asked for; the peer) run
// once in each repetition, in an order that moves on from one repetition to the next; between them the machine's limits
// are measured, which also drives a model that is larger than the caches out of them. A run's shares are taken against
// the mean of the limits before and after it. Tokens are pseudo-random and the same in every run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "bench/report.h"
#include "ops/techniques.h"

namespace lily::bench {

struct Options {
  std::vector<int> prefill, decode;  // lengths and contexts; rows come in ascending order, each once
  int reps = 3;
  int steps = 32;                   // decode steps of one repetition
  std::vector<std::string> ablate;  // names of techniques, or "all"
  bool stages = false;              // one more run of each plain row, timed op by op
  std::string peer;                 // a command (bench/peer.h); empty: none
  std::int64_t memory = 0;          // bytes that there are; 0: unknown, everything fits
};

/// 256, 512, 1K … 128K
std::vector<int> default_lengths();
/// Whether a row without the technique says anything about the phase.
bool acts(const ops::Technique& t, plan::Phase phase);

/// The techniques that `names` says, each once. Error(invalid_argument) for one that the back end does not have lists
/// those it has.
std::vector<ops::Technique> chosen_techniques(const Backend& backend, const std::vector<std::string>& names);

/// Called as the work goes on; each may be empty.
struct Listener {
  std::function<void(double seconds, int rows)> estimate;              // once, before the first row
  std::function<void(const std::string& what, double done)> progress;  // `done`: estimated seconds of work, so far
  std::function<void(const Row&)> row;
  std::function<void(const Skipped&)> skipped;
};

/// The rows of the report, which names machine, back end and model already.
/// Errors: those of a pass; Error(invalid_argument) for a technique that is not there, a peer's command that cannot be
/// run (its first run; later failures are entries of `skipped`).
void measure(Backend& backend, const Weights& weights, const Options& options, Report& report,
             const Listener& listener = {});

}  // namespace lily::bench
