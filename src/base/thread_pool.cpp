#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <system_error>

#include "base/error.h"
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

constexpr std::uint32_t kOpen = 1, kInside = 2, kInsideMask = 0xffe, kRun = 0x1000;

std::int64_t batches(const ThreadPool::Task& t) { return (t.units + t.grain - 1) / t.grain; }

// Where thread `owner`'s share of n batches begins (and that of the one before it ends).
std::int64_t share_begin(std::int64_t n, int owner, int threads) { return (n * owner + threads - 1) / threads; }

// Batches of all tasks that are `owner`'s share of the phase.
std::int64_t share_size(ThreadPool::Phase phase, int owner, int threads) {
  std::int64_t sum = 0;
  for (const ThreadPool::Task& task : phase) {
    const std::int64_t n = batches(task);
    sum += share_begin(n, owner + 1, threads) - share_begin(n, owner, threads);
  }
  return sum;
}

// Runs batch `index` of `owner`'s share on worker `thread`.
void run_batch(ThreadPool::Phase phase, int owner, int threads, std::int64_t index, int thread) {
  for (const ThreadPool::Task& task : phase) {
    const std::int64_t n = batches(task), first = share_begin(n, owner, threads);
    const std::int64_t count = share_begin(n, owner + 1, threads) - first;
    if (index < count) {
      const std::int64_t begin = (first + index) * task.grain;
      task.run(task.context, begin, std::min(task.units, begin + task.grain), thread);
      return;
    }
    index -= count;
  }
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(threads < 1 ? 1 : threads), lines_((threads_ + kCountersPerLine - 1) / kCountersPerLine) {
  try {
    for (int t = 1; t < threads_; ++t) workers_.emplace_back([this, t] { worker(t); });
  } catch (const std::system_error& e) {
    const std::size_t made = workers_.size() + 1;
    end_workers();
    throw Error(ErrorCode::out_of_memory, "--threads " + std::to_string(threads_) + ": the system gives no more than " +
                                              std::to_string(made) + " (" + e.what() + ")");
  }
}

ThreadPool::~ThreadPool() { end_workers(); }

void ThreadPool::end_workers() {
  stop_.store(true, std::memory_order_release);
  gate_.fetch_add(kRun, std::memory_order_seq_cst);
  wake(gate_);
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
  std::uint32_t seen = 0;  // the last run that this worker took part in, or found closed
  while (true) {
    wait_until(gate_, [&](std::uint32_t g) { return g / kRun != seen; });
    if (stop_.load(std::memory_order_acquire)) return;
    std::uint32_t g = gate_.load(std::memory_order_acquire);
    // Inside only while the run is on: after the gate has closed, its phases may be gone.
    while ((g & kOpen) && !gate_.compare_exchange_weak(g, g + kInside, std::memory_order_acq_rel)) {
    }
    seen = g / kRun;
    if (!(g & kOpen)) continue;
    run_phases(thread);
    if (!(gate_.fetch_sub(kInside, std::memory_order_seq_cst) & kOpen)) wake(gate_);  // the caller waits for the last to leave
  }
}

void ThreadPool::run(std::span<const Phase> phases) {
  if (phases.empty()) return;
  if (states_size_ < phases.size()) {
    states_ = std::make_unique<PhaseState[]>(phases.size());
    next_ = std::make_unique<NextLine[]>(phases.size() * std::size_t(lines_));
    states_size_ = phases.size();
  }
  for (std::size_t i = 0; i < phases.size(); ++i) {
    std::int64_t total = 0;
    for (const Task& task : phases[i]) total += batches(task);
    for (int t = 0; t < threads_; ++t) next(i, t).store(0, std::memory_order_relaxed);
    states_[i].left.store(std::uint32_t(total), std::memory_order_relaxed);
  }
  phases_ = phases;
  gate_.fetch_add(kRun + kOpen, std::memory_order_seq_cst);
  wake(gate_);
  run_phases(0);
  gate_.fetch_sub(kOpen, std::memory_order_seq_cst);
  wait_until(gate_, [](std::uint32_t g) { return (g & kInsideMask) == 0; });
}

void ThreadPool::run_phases(int thread) {
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    PhaseState& state = states_[i];
    const Phase phase = phases_[i];
    std::uint32_t done = 0;
    for (int k = 0; k < threads_; ++k) {  // its own share, then what the others have not begun
      const int owner = thread + k < threads_ ? thread + k : thread + k - threads_;
      const std::int64_t share = share_size(phase, owner, threads_);
      std::atomic<std::uint32_t>& taken = next(i, owner);
      while (taken.load(std::memory_order_relaxed) < share) {
        const std::int64_t index = taken.fetch_add(1, std::memory_order_relaxed);
        if (index >= share) break;
        run_batch(phase, owner, threads_, index, thread);
        ++done;
      }
    }
    // Whoever goes on has seen left == 0 in acquire order, and with it everything that the phase wrote.
    if (done > 0 && state.left.fetch_sub(done, std::memory_order_seq_cst) == done) {
      wake(state.left);
    } else {
      wait_until(state.left, [](std::uint32_t left) { return left == 0; });
    }
  }
}

}  // namespace lily
