// The engine: one model, kept resident, and the conversations it is having.
//
// A program loads a model once and then speaks to it through sessions. A session is one timeline of tokens with the state
// that they left in the model. `sync(ids)` makes the session's timeline equal to `ids` as cheaply as it can: by reading only
// what is new, by going back to a snapshot, or from the beginning. `next` then gives one token after another. Nothing here
// knows about text: tokens come in and tokens go out.
//
//     Engine engine(weights, {});
//     auto session = engine.session();
//     session->sync(prompt_ids);                            // prefill
//     Sampler sampler(SamplerOptions{.temperature = 0});
//     while (!is_end(id = session->next(sampler))) …        // decode
//
// (engine/generate.h does this loop with limits, cancelling and timing.)
//
// Bits: a prompt is always read in the arithmetic of Phase::prefill and a generated token in that of Phase::decode. Neither
// the chunks of a prompt nor where it was resumed changes a bit of the result.
//
// Errors: lily::Error. A session whose pass failed (non-finite logits, …) is as new afterwards: its state and every snapshot
// of it are dropped. Not thread-safe: one pass at a time through an engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/snapshots.h"

namespace lily {

class Sampler;  // engine/sampler.h

struct EngineOptions {
  BackendOptions backend;
  int max_context = 0;  // tokens; 0: the model's; more than the model's is refused
  int snapshots = 2;    // most a session keeps; each costs StateLayout::recurrent_bytes() and the logits
};

struct SyncReport {
  std::int64_t reused = 0;    // tokens whose state was already there
  std::int64_t computed = 0;  // tokens read now
};

/// `done` of `total` prompt tokens are in the state; called before the first chunk and after each. False stops the work:
/// Error(cancelled), and what was read stays.
using ProgressHook = std::function<bool(std::int64_t done, std::int64_t total)>;

struct SyncOptions {
  ProgressHook progress;
  /// Lengths of beginnings of the ids that later calls are likely to share (a message boundary), ascending; a snapshot is
  /// kept at each. Empty: one at the end.
  std::vector<std::int64_t> snapshot_at;
};

class Engine;

class Session {
 public:
  explicit Session(Engine& engine);
  /// Reads `ids` so that the next step predicts what follows them.
  /// Error(invalid_argument), before anything is computed: no ids, an id outside the vocabulary, or no room for even one
  /// more token in the window.
  SyncReport sync(std::span<const std::int32_t> ids, const SyncOptions& options = {});
  /// Samples from the current logits and appends the token to the timeline; it is computed when the next logits are wanted.
  /// Error(invalid_argument) when the window is full.
  std::int32_t next(Sampler& sampler);
  /// Logits that predict the token after the timeline: [vocab], valid until the next call.
  /// Error(numerical) when one is not finite.
  std::span<const float> logits();
  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  std::int64_t room() const;  // tokens that still fit into the window
  void reset();               // an empty timeline; snapshots stay
  std::int64_t snapshot_bytes() const { return snapshots_.bytes(); }

 private:
  std::int64_t resume(std::span<const std::int32_t> ids);
  void read(std::span<const std::int32_t> ids, std::int64_t end, bool want_logits);
  void run(plan::Phase phase, std::span<const std::int32_t> ids, bool want_logits);
  void keep_snapshot();
  void drop_everything();

  Engine& engine_;
  SequenceState state_;
  std::vector<std::int32_t> tokens_;  // the timeline; state_.length of them, all or all but the last, are in the state
  std::vector<float> logits_;         // [vocab] after state_.length tokens; empty: not computed
  SnapshotList snapshots_;
};

/// Called with logits [rows, vocab] of ids first_row … first_row + rows - 1.
using LogitsSink = std::function<void(std::int64_t first_row, int rows, const float* logits)>;

class Engine {
 public:
  /// `weights` outlives the engine.
  Engine(const Weights& weights, EngineOptions options);
  /// Over a back end of one's own (tests).
  Engine(std::unique_ptr<Backend> backend, const ModelShape& shape, EngineOptions options);

  std::unique_ptr<Session> session();
  Backend& backend() { return *backend_; }
  const ModelShape& shape() const { return shape_; }
  const EngineOptions& options() const { return options_; }
  int max_context() const { return max_context_; }

  /// Teacher-forced: the logits after each of `ids` (at most the window), handed to `sink` in order. The ids go in as passes
  /// of the sizes in `split` (the last one repeats; one beyond the back end's longest pass is cut into such; empty: passes
  /// of a size that keeps the logits within 256 MB). Size 1 is the decode path. `hook` sees each pass before `sink` does.
  void logits(std::span<const std::int32_t> ids, std::span<const int> split, const LogitsSink& sink,
              const LayerHook& hook = {});
  /// Error(invalid_argument) that names position and vocabulary when one of `ids` is outside it.
  void check_ids(std::span<const std::int32_t> ids) const;

 private:
  ModelShape shape_;
  EngineOptions options_;
  std::unique_ptr<Backend> backend_;
  int max_context_ = 0;
};

/// Error(numerical) unless all of `logits` are finite.
void require_finite(std::span<const float> logits);

}  // namespace lily
