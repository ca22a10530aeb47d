#include <gtest/gtest.h>
#include <cstring>
#include <memory>
#include "base/memory_use.h"
namespace lily {
namespace {

// What is touched is resident until it is given back.
TEST(MemoryUse, WhatIsTouchedIsResident) {
  const std::int64_t before = resident_bytes();
  if (before == 0) GTEST_SKIP() << "this system does not say what is resident";
  constexpr std::size_t kBytes = 64 << 20;
  std::unique_ptr<char[]> memory(new char[kBytes]);
  EXPECT_LT(resident_bytes(), before + std::int64_t(kBytes) / 2);  // not touched yet
  std::memset(memory.get(), 1, kBytes);
  EXPECT_GE(resident_bytes(), before + std::int64_t(kBytes) * 9 / 10);
  EXPECT_GE(peak_resident_bytes(), resident_bytes() * 9 / 10);
  memory.reset();
#if !defined(LILY_SANITIZED)  // AddressSanitizer keeps what was freed, to know it when it is read
  EXPECT_LT(resident_bytes(), before + std::int64_t(kBytes) / 2);  // given back: now, not the most there has been
#endif
  EXPECT_GT(physical_memory_bytes(), std::int64_t(kBytes));
}

}  // namespace
}  // namespace lily
