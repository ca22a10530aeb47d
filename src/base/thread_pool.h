// Worker threads that run a list of phases, one after another.
//
// A forward pass is hundreds of short phases (some under 10 µs), so workers stay awake during a run. A phase has ended when all its
// units are done, not when all workers have arrived: a worker that a busy machine does not schedule holds nobody up, the others
// take its share and go on, and it catches up when it runs again. Whoever waits spins for a bounded time, then sleeps: a machine
// that is shared with others must not lose a time slice to a spin. A worker has a share of every op, one range of units that it
// walks in order (what it reads stays one stream), and helps with the others' when it has done its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace lily {

/// Units of a batch when `units` of one op are dealt to `threads` workers: small enough to even out, large enough to stream.
inline std::int64_t batch_grain(std::int64_t units, int threads) {
  constexpr std::int64_t kBatchesPerThread = 32;
  const std::int64_t grain = units / (kBatchesPerThread * threads);
  return grain > 1 ? grain : 1;
}

/// Threads worth using for memory-bound work: physical cores that the affinity mask and the cgroup's quota allow.
int default_thread_count();

class ThreadPool {
 public:
  /// One op's work in a phase: units 0 … units, taken in batches of `grain`.
  struct Task {
    std::int64_t units = 0;
    std::int64_t grain = 1;
    /// Runs units [begin, end) on worker `thread` (0 … threads() − 1). Must not throw.
    void (*run)(const void* context, std::int64_t begin, std::int64_t end, int thread) = nullptr;
    const void* context = nullptr;
  };
  /// Tasks of one phase are independent; a phase begins when the one before has ended.
  using Phase = std::span<const Task>;

  /// Error(out_of_memory) names how many threads there could be.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  int threads() const { return threads_; }

  /// Runs the phases in order and returns when all is done. The caller is worker 0. One run at a time.
  void run(std::span<const Phase> phases);

 private:
  struct alignas(64) PhaseState {
    std::atomic<std::uint32_t> left{0};  // batches not yet done; 0: the phase has ended
  };
  static constexpr int kCountersPerLine = 16;
  struct alignas(64) NextLine {
    std::atomic<std::uint32_t> next[kCountersPerLine];  // of a worker's share: the next batch to hand out
  };
  std::atomic<std::uint32_t>& next(std::size_t phase, int owner) {
    return next_[phase * std::size_t(lines_) + std::size_t(owner / kCountersPerLine)].next[owner % kCountersPerLine];
  }
  template <class Ready>
  void wait_until(const std::atomic<std::uint32_t>& word, Ready ready);
  void wake(std::atomic<std::uint32_t>& word);
  void worker(int thread);
  void end_workers();
  void run_phases(int thread);

  int threads_;
  int lines_;  // of next_, for one phase
  std::vector<std::thread> workers_;
  // Of the current run; a worker looks at them only while it is counted inside the gate.
  std::span<const Phase> phases_;
  std::unique_ptr<PhaseState[]> states_;
  std::unique_ptr<NextLine[]> next_;
  std::size_t states_size_ = 0;
  // The gate: bit 0 says that a run is on, bits 1 … 11 count the workers inside, the rest counts the runs (it may wrap: a worker
  // that misses a run is not missed). Workers sleep on it.
  alignas(64) std::atomic<std::uint32_t> gate_{0};
  std::atomic<int> sleepers_{0};  // of all words: a wake is a system call, and mostly nobody sleeps
  std::atomic<bool> stop_{false};
};

}  // namespace lily
