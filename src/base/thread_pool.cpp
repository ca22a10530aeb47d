#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>

#include "base/futex.h"

namespace lily {
namespace {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// How long a thread that waits stays awake: well above the usual gap at a barrier, well below a time slice.
constexpr std::chrono::microseconds kSpin{100};

std::int64_t batches(const ThreadPool::Task& t) { return (t.units + t.grain - 1) / t.grain; }

// Runs batch `index` of the phase; false when there are not so many.
bool run_batch(ThreadPool::Phase phase, std::int64_t index, int thread) {
  for (const ThreadPool::Task& task : phase) {
    const std::int64_t n = batches(task);
    if (index < n) {
      const std::int64_t begin = index * task.grain;
      task.run(task.context, begin, std::min(task.units, begin + task.grain), thread);
      return true;
    }
    index -= n;
  }
  return false;
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(threads < 1 ? 1 : threads) {
  for (int t = 1; t < threads_; ++t) workers_.emplace_back([this, t] { worker(t); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_seq_cst);
  wake(generation_);
  for (std::thread& t : workers_) t.join();
}

template <class Ready>
void ThreadPool::wait_until(const std::atomic<std::uint32_t>& word, Ready ready) {
  const auto until = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready(word.load(std::memory_order_acquire))) return;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < until);
  // Counted before the last look: whoever changes the word afterwards sees the sleeper, or the sleeper sees the change.
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  for (std::uint32_t seen; !ready(seen = word.load(std::memory_order_seq_cst));) futex_wait(word, seen);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void ThreadPool::wake(std::atomic<std::uint32_t>& word) {
  if (sleepers_.load(std::memory_order_seq_cst) > 0) futex_wake_all(word);
}

void ThreadPool::worker(int thread) {
  std::uint32_t seen = 0;
  while (true) {
    wait_until(generation_, [&](std::uint32_t g) { return g != seen; });
    ++seen;
    if (stop_.load(std::memory_order_acquire)) return;
    run_phases(thread);
  }
}

void ThreadPool::run(std::span<const Phase> phases) {
  if (phases.empty()) return;
  if (states_size_ < phases.size()) {
    states_ = std::make_unique<PhaseState[]>(phases.size());
    states_size_ = phases.size();
  }
  for (std::size_t i = 0; i < phases.size(); ++i) {
    states_[i].next.store(0, std::memory_order_relaxed);
    states_[i].arrived.store(0, std::memory_order_relaxed);
  }
  phases_ = phases;
  generation_.fetch_add(1, std::memory_order_seq_cst);
  wake(generation_);
  run_phases(0);
}

void ThreadPool::run_phases(int thread) {
  const std::size_t count = phases_.size();  // not ours to read after the last arrival
  for (std::size_t i = 0; i < count; ++i) {
    PhaseState& state = states_[i];
    while (run_batch(phases_[i], state.next.fetch_add(1, std::memory_order_relaxed), thread)) {
    }
    // After its part of the last phase only the caller waits: the next run may begin as soon as everybody has arrived, and then
    // nobody may still be looking at these counters.
    const bool must_wait = thread == 0 || i + 1 < count;
    const auto all = std::uint32_t(threads_);
    if (state.arrived.fetch_add(1, std::memory_order_seq_cst) + 1 == all) {
      wake(state.arrived);
    } else if (must_wait) {
      wait_until(state.arrived, [&](std::uint32_t n) { return n == all; });
    }
  }
}

}  // namespace lily
