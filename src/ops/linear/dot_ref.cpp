#include "ops/linear/dot_ref.h"

#include <cmath>

namespace lily::ops {
namespace {

// std::fma gives the same bits everywhere; it is one instruction where the processor has it and a slow call where not.
[[gnu::always_inline]] inline float dot(const float* a, const float* b, std::int64_t n) {
  float lane[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int j = 0; j < 4; ++j) lane[j] = std::fma(a[i + j], b[i + j], lane[j]);
  for (int j = 0; i < n; ++i, ++j) lane[j] = std::fma(a[i], b[i], lane[j]);
  return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

#if defined(__x86_64__)
[[gnu::target("fma")]] float dot_with_fma(const float* a, const float* b, std::int64_t n) { return dot(a, b, n); }
#endif

}  // namespace

float dot_ref(const float* a, const float* b, std::int64_t n) {
#if defined(__x86_64__)
  static const bool has_fma = __builtin_cpu_supports("fma");
  if (has_fma) return dot_with_fma(a, b, n);
#endif
  return dot(a, b, n);
}

}  // namespace lily::ops
