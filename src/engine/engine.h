// The engine: one model, kept resident, and the conversations it is having.
//
// A program loads a model once and then speaks to it through sessions. A session is one timeline of tokens with the state
// that they left in the model. `sync(ids)` makes the session's timeline equal to `ids` (all but the last token, which the next
// step consumes) as cheaply as it can: by reading only what is new, by going back to a snapshot, or from the beginning.
// `next` then gives one token after another. Nothing here knows about text: tokens come in and tokens go out.
//
//     Engine engine(model, {});
//     auto session = engine.session();
//     session->sync(prompt_ids);                      // prefill
//     Sampler sampler(SamplerOptions{.temperature = 0});
//     while (!is_end(id = session->next(sampler))) …  // decode
//
// Errors: lily::Error. A session whose pass failed (non-finite logits, …) is as new afterwards: its state is dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace lily {

class Sampler;  // engine/sampler.h

struct EngineOptions {
  BackendOptions backend;
  int max_context = 0;  // 0: the model's; more than the model's is refused
};

struct SyncReport {
  std::int64_t reused = 0;    // tokens whose state was already there
  std::int64_t computed = 0;  // tokens read now
};

/// done of total prompt tokens have been read; false stops the work after the current chunk (Error cancelled; what was read stays).
using ProgressHook = std::function<bool(std::int64_t done, std::int64_t total)>;

class Engine;

class Session {
 public:
  explicit Session(Engine& engine);
  /// Reads `ids` (not empty, within the window) so that the next step predicts what follows them.
  SyncReport sync(std::span<const std::int32_t> ids, const ProgressHook& progress = {});
  /// Samples from the current logits, appends the token to the timeline and computes the logits after it lazily.
  /// Error(numerical) when the logits hold a NaN or infinity.
  std::int32_t next(Sampler& sampler);
  /// Logits that predict the token after the timeline: [vocab].
  std::span<const float> logits();
  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  void reset();

 private:
  Engine& engine_;
  SequenceState state_;
  std::vector<std::int32_t> tokens_;  // the timeline; state_.length of them are in the state
  std::vector<float> logits_;
};

class Engine {
 public:
  /// `weights` outlives the engine.
  Engine(const Weights& weights, EngineOptions options);
  std::unique_ptr<Session> session();
  Backend& backend() { return *backend_; }
  const ModelShape& shape() const;
  int max_context() const { return max_context_; }
  /// Teacher-forced: float32 logits [n, vocab] handed to `sink` in order, a few rows at a time. The ids go in as passes of the
  /// sizes in `split` (the last one repeats; empty: the back end's chunk); size 1 is the decode path.
  void logits(std::span<const std::int32_t> ids, std::span<const int> split,
              const std::function<void(std::int64_t first_row, int rows, const float* logits)>& sink,
              const LayerHook& hook = {});

 private:
  std::unique_ptr<Backend> backend_;
  int max_context_ = 0;
};

}  // namespace lily
