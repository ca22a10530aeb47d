// Sleeping on a 32-bit word. The standard library's wait yields a few times before it sleeps, and on a busy machine a yield
// costs a time slice of milliseconds, a thousand times what a barrier may cost.
#pragma once

#include <atomic>
#include <cstdint>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#endif

namespace lily {

/// Sleeps while `word` is `seen`; may return early for no reason.
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen) {
#if defined(__linux__)
  static_assert(sizeof word == 4);
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
#else
  word.wait(seen, std::memory_order_acquire);
#endif
}

/// Wakes everybody who sleeps on `word`.
inline void futex_wake_all(std::atomic<std::uint32_t>& word) {
#if defined(__linux__)
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
#else
  word.notify_all();
#endif
}

}  // namespace lily
