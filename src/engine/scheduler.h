// Several conversations at once: one worker thread that owns the engine.
//
// A request waits in a queue until a slot and memory are free. Then the worker takes turns: one decode step for all that are
// answering, together, so that the weights are read once for all of them; and one chunk of a prompt of those that are reading.
// While somebody is answering, chunks are short, and a chunk is followed by as much time of decoding as it took: a long prompt
// costs a running answer at most half of its rate. Prompts take turns chunk by chunk, so that a short one need not wait for a long
// one's end; what fits beside the one whose turn it is comes with it, since a pass over few tokens costs nearly what one over many does.
//
// Where running answers outgrow the memory, the one that came last gives its memory back and waits for its turn again; what it had
// said is then computed again, step by step, so that it goes on with the same bits.
//
// Nothing a request does changes another one's bits (engine.h), and an error ends the request it happened to, not the worker.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/cache_store.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "engine/sampler.h"

namespace lily {

/// What may stand next in an answer, where that is not the sampler's choice alone.
class Guide {
 public:
  virtual ~Guide() = default;
  /// The token that must come next; none: the sampler chooses among what restrict() leaves.
  virtual std::optional<std::int32_t> forced() { return std::nullopt; }
  /// Sets logits of what may not come to -infinity. False: nothing was changed.
  virtual bool restrict(std::span<float> logits) { (void)logits; return false; }
  /// The token that came.
  virtual void accept(std::int32_t id) = 0;
};

struct TokenLogprob {
  std::int32_t id = 0;
  float logprob = 0;  // of the model's distribution, before temperature and all else
};

struct NextToken {
  std::int32_t id = 0;
  float logprob = 0;                       // with `logprobs` alone
  std::vector<TokenLogprob> top;           // the most likely ones, best first
};

/// How a request ended. `error` is set when it failed; what had come before stands.
struct Ended {
  Finish finish = Finish::length;
  std::exception_ptr error;
  SyncReport prompt;
  double queue_seconds = 0, prefill_seconds = 0, decode_seconds = 0;
  std::int64_t decode_steps = 0;
};

/// Who asked. Called by the worker's thread: must return at once and not throw. accepted() is called by submit(), which passes on what
/// it throws.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void accepted() {}                                              // it has a place in the queue
  virtual void started(const SyncReport&) {}                              // it has a slot
  virtual void progress(std::int64_t, std::int64_t) {}                    // tokens of the prompt in the state, of so many
  virtual bool token(const NextToken& token) = 0;                         // false: stop; end tokens are not told
  virtual void ended(const Ended& ended) = 0;                             // the last call; its memory is free by then
};

struct Request {
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> snapshot_at;
  SamplerOptions sampling;
  std::int64_t max_tokens = 0;  // 0: to the end of the window; end token included
  std::vector<std::int32_t> end_ids;
  std::optional<int> logprobs;  // how many alternatives; absent: no log probabilities at all
  std::unique_ptr<Guide> guide;
  std::shared_ptr<Listener> listener;
};

struct SchedulerOptions {
  int parallel = 4;                  // requests that are reading or answering
  int queue = 64;                    // … that wait
  std::int64_t cache_bytes = 0;      // of snapshots, KV and running conversations together
  std::int64_t busy_chunk = 128;     // tokens of a chunk while somebody is answering
  std::int64_t chunk = 0;            // … while nobody is; 0: the back end's longest pass
  double chunk_seconds = 8;          // a chunk takes no longer than about this: a cancel, or somebody new, waits for its end
  std::shared_ptr<CacheStore> store; // keeps snapshots beyond the process; null: nothing does
};

struct SchedulerStatus {
  int running = 0, reading = 0, waiting = 0;
  std::int64_t requests = 0, failed = 0, cancelled = 0;
  std::int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0;  // of the worker's time
  std::int64_t running_bytes = 0;                  // reserved by running conversations
  bool alive = true;
  std::int64_t last_hit = 0, last_prompt = 0;      // of the last request that began: tokens known, of so many
  Parting last_parting;                            // … and where it parted from what was cached
  std::vector<std::int32_t> last_ids;              // … its own ids around there
};

class Scheduler {
 public:
  /// `engine` outlives the scheduler and is used by nobody else.
  Scheduler(Engine& engine, SchedulerOptions options);
  /// Ends what runs (Finish::stopped) and the worker.
  ~Scheduler();

  /// A number by which the request can be cancelled; none: the queue is full. Error(invalid_argument) at once for ids that no
  /// session would take and for a prompt that the budget can never hold. In neither case has the listener heard anything.
  std::optional<std::int64_t> submit(Request request);
  /// Stops it within one pass: its listener hears ended() with Finish::stopped. Unknown numbers are ignored.
  void cancel(std::int64_t number);

  SchedulerStatus status() const;
  PrefixCache& cache() { return *cache_; }
  /// The longest prompt with its answer that the budget can hold.
  std::int64_t window() const { return window_; }

 private:
  struct Job;
  using Jobs = std::list<std::unique_ptr<Job>>;

  void work();
  void take_turn();
  void settle();
  void write_behind();
  void store_all();
  void drop_cancelled();
  void admit();
  void start(Job& job);
  double decode_step();
  double read_chunk(std::int64_t longest);
  std::vector<Job*> who_reads();
  std::int64_t longest_chunk() const;
  void catch_up(Job& job);
  void give_token(Job& job);
  void end(Job& job, Finish finish, std::exception_ptr error = nullptr);
  void keep_snapshot(Job& job);
  void fit_memory();
  void wait_again(Jobs::iterator job);
  std::int64_t running_bytes() const;
  std::int64_t bytes_of(std::int64_t tokens) const;
  std::int64_t shared_bytes(std::int64_t tokens) const;

  Engine& engine_;
  SchedulerOptions options_;
  std::shared_ptr<PrefixCache> cache_;
  std::int64_t window_ = 0;

  mutable std::mutex mutex_;  // guards queue_, arriving_, cancelled_, stopping_, status_
  std::condition_variable wake_;
  Jobs queue_;
  int arriving_ = 0;  // places taken by requests whose listeners are being told
  std::vector<std::int64_t> cancelled_;
  bool stopping_ = false;
  std::int64_t last_number_ = 0;
  SchedulerStatus status_;

  Jobs jobs_;          // the worker's: those with a slot, in the order of their turns
  Jobs over_;          // … and those whose listeners are still to hear of their end
  double rate_ = 0;    // tokens a second of the last chunk that says something about it; 0: none yet
  double debt_ = 0;    // seconds of decoding that are owed for chunks read while somebody was answering
  std::thread worker_, writer_;  // the latter with a store alone
  std::int64_t stored_ = 0;      // CacheUse::kept when all was written last
};

}  // namespace lily
