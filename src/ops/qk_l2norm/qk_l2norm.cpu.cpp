#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

std::int64_t qk_l2norm_units(const QkL2NormArgs& a) { return a.rows; }  // a unit is a row

void qk_l2norm_run(const QkL2NormArgs& a, std::int64_t begin, std::int64_t end, CpuScratch&) {
  const float q_scale = rsqrt(float(a.dim));
  for (std::int64_t r = begin; r < end; ++r) {
    for (int h = 0; h < 2 * a.heads; ++h) {  // the q heads, then the k heads
      float* x = a.qkv + r * a.stride + std::int64_t(h) * a.dim;
      const float unit = rsqrt(sum_squares(x, a.dim) + 1e-6f);
      const F32 scale = set1(h < a.heads ? unit * q_scale : unit);
      LILY_FOR_LANES(i, n, a.dim) store_part(x + i, load_part(x + i, n) * scale, n);
    }
  }
}

}  // namespace lily::ops::LILY_ISA
