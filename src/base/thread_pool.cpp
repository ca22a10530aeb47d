#include "base/thread_pool.h"

#include <algorithm>

namespace lily {
namespace {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Waits until `value` satisfies `ready`: about 20 µs of spinning, then 50 yields, then asleep.
template <class T, class Ready>
void wait_until(std::atomic<T>& value, Ready ready) {
  for (int i = 0; i < 500; ++i) {
    if (ready(value.load(std::memory_order_acquire))) return;
    pause_cpu();
  }
  for (int i = 0; i < 50; ++i) {
    if (ready(value.load(std::memory_order_acquire))) return;
    std::this_thread::yield();
  }
  while (true) {
    const T seen = value.load(std::memory_order_acquire);
    if (ready(seen)) return;
    value.wait(seen, std::memory_order_acquire);
  }
}

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
  generation_.fetch_add(1, std::memory_order_acq_rel);
  generation_.notify_all();
  for (std::thread& t : workers_) t.join();
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
  generation_.fetch_add(1, std::memory_order_acq_rel);
  generation_.notify_all();
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
    if (state.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      state.arrived.notify_all();
    } else if (must_wait) {
      wait_until(state.arrived, [&](int n) { return n == threads_; });
    }
  }
}

}  // namespace lily
