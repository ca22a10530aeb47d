#include "ops/probe/probe.h"

#include "ops/matmul/dot.h"

namespace lily::ops::LILY_ISA {

#if defined(__x86_64__)
// 12 dot products into registers of their own hide the latency on every machine so far. Written as assembly: a compiler keeps an
// array of sums in memory.
#define LILY_12(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11)
#if defined(__AVX512VNNI__)
#define LILY_DOT(i) "vpdpbusd %%zmm15, %%zmm15, %%zmm" #i "\n"
#elif defined(__AVXVNNI__)
#define LILY_DOT(i) "%{vex%} vpdpbusd %%ymm15, %%ymm15, %%ymm" #i "\n"
#else  // pairs of products in 16 bits and their sums: the fastest exact form for codes up to 15
#define LILY_DOT(i) "vpmaddubsw %%ymm15, %%ymm15, %%ymm14\nvpaddw %%ymm14, %%ymm" #i ", %%ymm" #i "\n"
#endif
std::int64_t probe_int8_ops(std::int64_t rounds) {
  std::int64_t n = rounds;
  __asm__ volatile("1:\n" LILY_12(LILY_DOT) "dec %0\njnz 1b\n"
                   : "+r"(n)::"cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                     "xmm11", "xmm14", "xmm15");
  return rounds * 12 * kByteLanes * 2;
}
#else
std::int64_t probe_int8_ops(std::int64_t rounds) {
  enum : int { kSums = 12 };
  alignas(64) std::uint8_t bytes[kByteLanes] = {1, 2, 3};
  const Bytes code = load_bytes(bytes);
  Dot<false> dot[kSums];
  for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) dot[i].step(code, code);
  I32 total = zero_int();
  for (int i = 0; i < kSums; ++i) total = add(total, dot[i].total());
  store_bytes(bytes, as_bytes(total));
  __asm__ volatile("" : : "m"(bytes));
  return rounds * kSums * kByteLanes * 2;
}
#endif

std::uint64_t probe_read(const std::byte* p, std::size_t bytes) {
  I32 a = zero_int(), b = zero_int(), c = zero_int(), d = zero_int();
  for (std::size_t i = 0; i < bytes; i += 4 * kByteLanes) {
    a = add(a, as_int(load_bytes(p + i)));
    b = add(b, as_int(load_bytes(p + i + kByteLanes)));
    c = add(c, as_int(load_bytes(p + i + 2 * kByteLanes)));
    d = add(d, as_int(load_bytes(p + i + 3 * kByteLanes)));
  }
  alignas(64) std::uint8_t out[kByteLanes];
  store_bytes(out, as_bytes(add(add(a, b), add(c, d))));
  std::uint64_t v;
  memcpy(&v, out, 8);
  return v;
}

}  // namespace lily::ops::LILY_ISA
