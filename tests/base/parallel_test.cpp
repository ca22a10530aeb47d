#include "base/parallel.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>

namespace lily {
namespace {

TEST(RunOnThreads, AllPiecesAreDoneAndErrorsComeOut) {
  for (const int threads : {0, 1, 4}) {
    std::atomic<int> next{0}, sum{0};
    run_on_threads(threads, [&] {
      for (int i; (i = next++) < 1000;) sum += i;
    });
    EXPECT_EQ(sum, 499500);
  }
  EXPECT_THROW(run_on_threads(3, [] { throw std::runtime_error("x"); }), std::runtime_error);
}

TEST(RunOnThreads, FewerThreadsThanAskedForDoTheWork) {
#if defined(LILY_SANITIZED)
  GTEST_SKIP() << "a sanitized program needs more address space than the limit leaves";
#endif
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{rlim_t(1) << 30, rlim_t(1) << 30};  // a thousand stacks need more
    ::setrlimit(RLIMIT_AS, &limit);
    std::atomic<int> next{0}, sum{0};
    run_on_threads(2000, [&] {
      for (int i; (i = next++) < 5000;) {
        ::usleep(10);
        ++sum;
      }
    });
    ::_exit(sum == 5000 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace lily
