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

constexpr std::uint64_t kOpen = 1, kInside = 2, kInsideMask = 0xfffe, kRun = 0x10000;

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
  gate_.fetch_add(kRun, std::memory_order_acq_rel);
  gate_.notify_all();
  for (std::thread& t : workers_) t.join();
}

void ThreadPool::worker(int thread) {
  std::uint64_t seen = 0;  // the last run that this worker took part in, or saw closed
  while (true) {
    wait_until(gate_, [&](std::uint64_t g) { return g / kRun != seen; });
    std::uint64_t g = gate_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_acquire)) return;
    // Inside only while the run is on: after the gate has closed, its phases may be gone.
    while ((g & kOpen) && !gate_.compare_exchange_weak(g, g + kInside, std::memory_order_acq_rel)) {
    }
    seen = g / kRun;
    if (!(g & kOpen)) continue;
    run_phases(thread);
    const std::uint64_t before = gate_.fetch_sub(kInside, std::memory_order_acq_rel);
    if (!(before & kOpen) && (before & kInsideMask) == kInside) gate_.notify_all();  // the caller waits for the last to leave
  }
}

void ThreadPool::run(std::span<const Phase> phases) {
  if (phases.empty()) return;
  if (states_size_ < phases.size()) {
    states_ = std::make_unique<PhaseState[]>(phases.size());
    states_size_ = phases.size();
  }
  for (std::size_t i = 0; i < phases.size(); ++i) {
    std::int64_t total = 0;
    for (const Task& task : phases[i]) total += batches(task);
    states_[i].next.store(0, std::memory_order_relaxed);
    states_[i].left.store(total, std::memory_order_relaxed);
  }
  phases_ = phases;
  gate_.fetch_add(kRun + kOpen, std::memory_order_acq_rel);
  if (threads_ > 1) gate_.notify_all();
  run_phases(0);
  gate_.fetch_sub(kOpen, std::memory_order_acq_rel);
  wait_until(gate_, [](std::uint64_t g) { return (g & kInsideMask) == 0; });
}

void ThreadPool::run_phases(int thread) {
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    PhaseState& state = states_[i];
    std::int64_t done = 0;
    while (run_batch(phases_[i], state.next.fetch_add(1, std::memory_order_relaxed), thread)) ++done;
    // Whoever goes on has seen left == 0 with acquire order: everything that the phase wrote.
    if (done > 0 && state.left.fetch_sub(done, std::memory_order_acq_rel) == done) {
      state.left.notify_all();
    } else {
      wait_until(state.left, [](std::int64_t left) { return left == 0; });
    }
  }
}

}  // namespace lily
