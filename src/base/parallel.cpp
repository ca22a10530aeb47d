#include "base/parallel.h"

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace lily {

void run_on_threads(int threads, const std::function<void()>& work) {
  std::exception_ptr failure;
  std::mutex mutex;
  const auto guarded = [&] {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> pool;
  try {
    for (int i = 1; i < threads; ++i) pool.emplace_back(guarded);
  } catch (const std::exception&) {  // std::system_error, std::bad_alloc: those that were made do it
  }
  guarded();
  for (std::thread& thread : pool) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lily
