// The pool: every unit once, phases in order, any number of threads; no data race under -DLILY_SANITIZE=thread.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace lily {
namespace {

using Clock = std::chrono::steady_clock;

/// Counts how often each unit ran; not atomic on purpose: units are disjoint, and the pool must order the phases.
struct Counter {
  std::vector<int> seen;
  int expected_before = 0;  // what every unit's count must be when it runs
  std::atomic<bool> wrong{false};
  std::atomic<int> threads_used{0};  // bit set

  static void run(const void* context, std::int64_t begin, std::int64_t end, int thread) {
    Counter& c = *const_cast<Counter*>(static_cast<const Counter*>(context));
    c.threads_used |= 1 << thread;
    for (std::int64_t i = begin; i < end; ++i) {
      if (c.seen[std::size_t(i)]++ != c.expected_before) c.wrong = true;
    }
  }
};

ThreadPool::Task task(Counter& c, std::int64_t grain) {
  return {std::int64_t(c.seen.size()), grain, Counter::run, &c};
}

TEST(ThreadPool, EveryUnitOnceWhateverTheGrain) {
  for (int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (std::int64_t units : {0, 1, 2, 7, 1000})
      for (std::int64_t grain : {1, 3, 2000}) {
        Counter a{.seen = std::vector<int>(std::size_t(units))}, b{.seen = std::vector<int>(5)};
        const ThreadPool::Task tasks[] = {task(a, grain), task(b, 2)};
        const ThreadPool::Phase phase(tasks);
        pool.run({&phase, 1});
        EXPECT_EQ(a.seen, std::vector<int>(std::size_t(units), 1)) << threads << " threads, grain " << grain;
        EXPECT_EQ(b.seen, std::vector<int>(5, 1));
        EXPECT_FALSE(a.wrong);
      }
  }
}

// A phase reads what the one before wrote, cut differently: wrong order or a missing barrier shows as a wrong sum (and
// as a race under the thread sanitizer).
TEST(ThreadPool, PhasesAreOrdered) {
  ThreadPool pool(2);
  constexpr int kUnits = 64, kPhases = 200;
  struct Step {
    const std::vector<int>* in;
    std::vector<int>* out;
    static void run(const void* context, std::int64_t begin, std::int64_t end, int) {
      const Step& s = *static_cast<const Step*>(context);
      for (std::int64_t i = begin; i < end; ++i)
        (*s.out)[std::size_t(i)] =
            (*s.in)[std::size_t((i + 7) % kUnits)] + (*s.in)[std::size_t((i * 5) % kUnits)] % 3 + 1;
    }
  };
  std::vector<std::vector<int>> rows(kPhases + 1, std::vector<int>(kUnits, 1)), expected = rows;
  std::vector<Step> steps;
  std::vector<ThreadPool::Task> tasks;
  for (int p = 0; p < kPhases; ++p) steps.push_back({&rows[std::size_t(p)], &rows[std::size_t(p) + 1]});
  for (int p = 0; p < kPhases; ++p) tasks.push_back({kUnits, 1 + p % 5, Step::run, &steps[std::size_t(p)]});
  std::vector<ThreadPool::Phase> phases;
  for (const ThreadPool::Task& t : tasks) phases.emplace_back(&t, 1);
  for (int p = 0; p < kPhases; ++p) {
    const Step s{&expected[std::size_t(p)], &expected[std::size_t(p) + 1]};
    Step::run(&s, 0, kUnits, 0);
  }
  for (int repeat = 0; repeat < 20; ++repeat) {
    for (std::size_t p = 1; p < rows.size(); ++p) std::fill(rows[p].begin(), rows[p].end(), -1);
    pool.run(phases);
    ASSERT_EQ(rows, expected);
  }
}

TEST(ThreadPool, ManyRunsOfRandomShapes) {
  std::mt19937 random(7);
  for (int threads : {2, 4}) {  // 4: more than this test asks of a small machine
    ThreadPool pool(threads);
    for (int run = 0; run < 400; ++run) {
      const int count = 1 + int(random() % 6);
      std::vector<std::unique_ptr<Counter>> counters;
      std::vector<std::vector<ThreadPool::Task>> tasks(std::size_t(count), std::vector<ThreadPool::Task>{});
      for (auto& of_phase : tasks) {
        for (int t = 0; t < int(random() % 4); ++t) {
          counters.push_back(std::make_unique<Counter>());
          counters.back()->seen.resize(random() % 50);
          of_phase.push_back(task(*counters.back(), 1 + random() % 9));
        }
      }
      std::vector<ThreadPool::Phase> phases(tasks.begin(), tasks.end());
      pool.run(phases);
      for (const auto& c : counters) {
        ASSERT_EQ(c->seen, std::vector<int>(c->seen.size(), 1));
        ASSERT_FALSE(c->wrong);
      }
      if (run % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));  // let the workers fall asleep
    }
  }
}

TEST(ThreadPool, EmptyRunAndIdlePool) {
  ThreadPool pool(3);
  pool.run({});
  ThreadPool never_used(3);
}

// Both workers must take part: each unit waits (bounded) until the other one has been seen.
TEST(ThreadPool, WorkIsShared) {
  ThreadPool pool(2);
  struct Meeting {
    std::atomic<int> there{0};
    std::atomic<bool> met{true};
    static void run(const void* context, std::int64_t, std::int64_t, int) {
      Meeting& m = *const_cast<Meeting*>(static_cast<const Meeting*>(context));
      ++m.there;
      const auto deadline = Clock::now() + std::chrono::seconds(20);
      while (m.there < 2)
        if (Clock::now() > deadline) {
          m.met = false;
          return;
        }
    }
  } meeting;
  const ThreadPool::Task t{2, 1, Meeting::run, &meeting};
  const ThreadPool::Phase phase(&t, 1);
  pool.run({&phase, 1});
  EXPECT_TRUE(meeting.met);
}

TEST(ThreadPool, DefaultCountIsWithinTheMachine) {
  EXPECT_GE(default_thread_count(), 1);
  EXPECT_LE(default_thread_count(), std::max(1, int(std::thread::hardware_concurrency())));
}

}  // namespace
}  // namespace lily
