#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

constexpr int kHeadsOfUnit = 8;  // a unit is a few heads of one row, so that a single row still feeds several threads

std::int64_t gated_rms_norm_units(const GatedRmsNormArgs& a) { return a.rows * div_up(a.heads, kHeadsOfUnit); }

void gated_rms_norm_run(const GatedRmsNormArgs& a, std::int64_t begin, std::int64_t end, CpuScratch&) {
  const std::int64_t parts = div_up(a.heads, kHeadsOfUnit);
  for (std::int64_t u = begin; u < end; ++u) {
    const std::int64_t row = u / parts, h0 = u % parts * kHeadsOfUnit;
    const std::int64_t h1 = h0 + kHeadsOfUnit < a.heads ? h0 + kHeadsOfUnit : a.heads;
    for (std::int64_t h = h0; h < h1; ++h) {
      const std::int64_t at = (row * a.heads + h) * a.dim;
      const float *o = a.o + at, *z = a.z + at;
      float* y = a.y + at;
      const F32 scale = set1(rsqrt(sum_squares(o, a.dim) / float(a.dim) + a.eps));
      LILY_FOR_LANES(i, n, a.dim) {
        const F32 normed = load_part(o + i, n) * scale * load_part(a.w + i, n);
        store_part(y + i, normed * silu(load_part(z + i, n)), n);
      }
    }
  }
}

}  // namespace lily::ops::LILY_ISA
