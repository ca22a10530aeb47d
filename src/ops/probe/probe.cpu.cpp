#include "ops/probe/probe.h"

#include "ops/matmul/dot.h"

namespace lily::ops::LILY_ISA {

// 12 independent sums hide the latency of the dot product on every machine so far; the compiler may not see through `sink`.
std::int64_t probe_int8_ops(std::int64_t rounds) {
  enum : int { kSums = 12 };
  alignas(64) std::uint8_t bytes[kByteLanes];
  for (int i = 0; i < kByteLanes; ++i) bytes[i] = std::uint8_t(i % 15);
  const Bytes code = load_bytes(bytes);
  Dot<false> dot[kSums];
  I32 total = zero_int();
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 8
    for (int s = 0; s < kDotSteps; ++s) {
      Bytes x = code;
      __asm__ volatile("" : "+m"(bytes));
#pragma GCC unroll 12
      for (int i = 0; i < kSums; ++i) dot[i].step(code, x);
    }
    if (r % 64 == 63 || r == rounds - 1)
#pragma GCC unroll 12
      for (int i = 0; i < kSums; ++i) {
        total = add(total, dot[i].total());
        dot[i] = Dot<false>{};
      }
  }
  store_bytes(bytes, total);
  __asm__ volatile("" : : "m"(bytes));
  return rounds * kDotSteps * kSums * kByteLanes * 2;
}

std::uint64_t probe_read(const std::byte* p, std::size_t bytes) {
  I32 a = zero_int(), b = zero_int(), c = zero_int(), d = zero_int();
  for (std::size_t i = 0; i < bytes; i += 4 * kByteLanes) {
    a = add(a, load_bytes(p + i));
    b = add(b, load_bytes(p + i + kByteLanes));
    c = add(c, load_bytes(p + i + 2 * kByteLanes));
    d = add(d, load_bytes(p + i + 3 * kByteLanes));
  }
  alignas(64) std::uint8_t out[kByteLanes];
  store_bytes(out, add(add(a, b), add(c, d)));
  std::uint64_t v;
  memcpy(&v, out, 8);
  return v;
}

}  // namespace lily::ops::LILY_ISA
