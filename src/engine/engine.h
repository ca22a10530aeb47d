// The engine: one model, kept resident, and the conversations it is having.
//
// A program loads a model once and then speaks to it through sessions. A session is one timeline of tokens with the
// state that they left in the model. `sync(ids)` makes the session's timeline equal to `ids` as cheaply as it can: by
// reading only what is new, by going back to a snapshot, or from the beginning. `next` then gives one token after
// another. Nothing here knows about text: tokens come in and tokens go out.
//
//     Engine engine(weights, {});
//     auto session = engine.session();
//     session->sync(prompt_ids);                            // prefill
//     Sampler sampler(SamplerOptions{.temperature = 0});
//     while (!is_end(id = session->next(sampler))) …        // decode
//
// (engine/generate.h does this loop with limits, cancelling and timing; engine/scheduler.h does it for several
// conversations at once, which share a cache and the reading of weights.)
//
// Bits: a prompt is always read in the arithmetic of Phase::prefill and a generated token in that of Phase::decode.
// Neither the chunks of a prompt, nor where it was resumed, nor who else was in the pass changes a bit of the result.
//
// Errors: lily::Error. A session whose pass failed (non-finite logits, …) is as new afterwards: its state and every
// snapshot on its way are dropped. Not thread-safe: one pass at a time through an engine.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/prefix_cache.h"

namespace lily {

class Sampler;  // engine/sampler.h

struct EngineOptions {
  BackendOptions backend;
  int max_context = 0;  // tokens; 0: the model's; more than the model's is refused
  int snapshots = 2;    // most that a session with a cache of its own keeps; each costs StateLayout::recurrent_bytes() and the logits
};

struct SyncReport {
  std::int64_t reused = 0;    // tokens whose state was already there
  std::int64_t computed = 0;  // tokens read now
};

/// `done` of `total` prompt tokens are in the state; called before the first chunk and after each. False stops the
/// work: Error(cancelled), and what was read stays.
using ProgressHook = std::function<bool(std::int64_t done, std::int64_t total)>;

struct SyncOptions {
  ProgressHook progress;
  /// Lengths of beginnings of the ids that later calls are likely to share (a message boundary), ascending; a snapshot
  /// is kept at each. Empty: one at the end.
  std::vector<std::int64_t> snapshot_at;
};

class Engine;

class Session {
 public:
  /// `cache`: shared with other sessions; null: one of its own, of EngineOptions::snapshots.
  explicit Session(Engine& engine, std::shared_ptr<PrefixCache> cache = nullptr);
  /// Reads `ids` so that the next step predicts what follows them.
  /// Error(invalid_argument), before anything is computed: no ids, an id outside the vocabulary, or no room for even
  /// one more token in the window.
  SyncReport sync(std::span<const std::int32_t> ids, const SyncOptions& options = {});

  /// The same, pass by pass: begin() goes to the longest beginning of `ids` that has a state (errors as sync's), advance()
  /// reads the next pass, of at most `longest` tokens (0: the back end's), until none are left to_read().
  SyncReport begin(std::vector<std::int32_t> ids, std::vector<std::int64_t> snapshot_at);
  void advance(std::int64_t longest = 0);
  std::int64_t to_read() const { return std::int64_t(prompt_.size()) - state_.length; }

  /// Samples from the current logits and appends the token to the timeline; it is computed when the next logits are
  /// wanted. Error(invalid_argument) when the window is full.
  std::int32_t next(Sampler& sampler);
  /// Appends a token that somebody else chose.
  void append(std::int32_t id);
  /// Logits that predict the token after the timeline: [vocab], valid until the next call.
  /// Error(numerical) when one is not finite.
  std::span<const float> logits();
  /// Keeps what has been computed of the timeline in the cache.
  void keep_snapshot();
  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  std::int64_t computed() const { return state_.length; }  // tokens in the state: all, or all but the last
  std::int64_t room() const;                               // tokens that still fit into the window
  void reset();                                            // an empty timeline; snapshots stay
  PrefixCache& cache() { return *cache_; }
  /// Memory that would be free if it ended: its state and logits, and the KV blocks that nobody shares.
  std::int64_t own_bytes() const;

 private:
  friend class Engine;
  std::int64_t resume(std::span<const std::int32_t> ids);
  std::int64_t next_stop() const;
  void has_read();
  void require_room() const;
  void drop_everything();

  Engine& engine_;
  std::shared_ptr<PrefixCache> cache_;
  SequenceState state_;
  std::vector<std::int32_t> tokens_;    // the timeline; state_.length of them, all or all but the last, are in the state
  std::vector<float> logits_;           // [vocab] after state_.length tokens; empty: not computed
  std::vector<std::int32_t> prompt_;    // what begin() was given
  std::vector<std::int64_t> stops_;     // lengths at which to keep a snapshot, ascending
  std::size_t next_stop_ = 0;
};

/// Called with logits [rows, vocab] of ids first_row … first_row + rows - 1.
using LogitsSink = std::function<void(std::int64_t first_row, int rows, const float* logits)>;

class Engine {
 public:
  /// `weights` outlives the engine.
  Engine(const Weights& weights, EngineOptions options);
  /// Over a back end of one's own (tests).
  Engine(std::unique_ptr<Backend> backend, const ModelShape& shape, EngineOptions options);

  std::unique_ptr<Session> session(std::shared_ptr<PrefixCache> cache = nullptr);
  /// Computes the last token of each session that has one to compute, in one pass that reads the weights once. Returns what went
  /// wrong with each (null: nothing); a session that failed is as new. At most max_rows() of the back end.
  std::vector<std::exception_ptr> decode(std::span<Session* const> sessions);
  /// Reads the next pass of the first session's prompt, as Session::advance does, and with it, in the same pass, the others' up to their
  /// next snapshots or ends, where they fit whole into what is left of `longest`. Each has something to_read(). Returns as decode() does.
  std::vector<std::exception_ptr> read(std::span<Session* const> sessions, std::int64_t longest);
  Backend& backend() { return *backend_; }
  const ModelShape& shape() const { return shape_; }
  const EngineOptions& options() const { return options_; }
  int max_context() const { return max_context_; }

  /// Teacher-forced: the logits after each of `ids` (at most the window), handed to `sink` in order. The ids go in as
  /// passes of the sizes in `split` (the last one repeats; one beyond the back end's longest pass is cut into such;
  /// empty: passes of a size that keeps the logits within 256 MB). Size 1 is the decode path. `hook` sees each pass
  /// before `sink` does.
  void logits(std::span<const std::int32_t> ids, std::span<const int> split, const LogitsSink& sink,
              const LayerHook& hook = {});
  /// Error(invalid_argument) that names position and vocabulary when one of `ids` is outside it.
  void check_ids(std::span<const std::int32_t> ids) const;

 private:
  /// What one of the sessions has in a pass: at most one row of logits.
  struct Share {
    std::size_t whose;
    Segment segment;
  };
  std::vector<std::exception_ptr> run(plan::Phase phase, std::span<Session* const> sessions, std::span<const Share> shares);

  ModelShape shape_;
  EngineOptions options_;
  std::unique_ptr<Backend> backend_;
  int max_context_ = 0;
};

/// Error(numerical) unless all of `logits` are finite.
void require_finite(std::span<const float> logits);

}  // namespace lily
