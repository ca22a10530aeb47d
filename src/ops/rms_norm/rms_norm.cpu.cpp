#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

std::int64_t rms_norm_units(const RmsNormArgs& a) { return a.rows; }  // a unit is a row

void rms_norm_run(const RmsNormArgs& a, std::int64_t begin, std::int64_t end, CpuScratch&) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float* x = a.x + r * a.width;
    float* y = a.y + r * a.width;
    const F32 scale = set1(rsqrt(sum_squares(x, a.width) / float(a.width) + a.eps));
    LILY_FOR_LANES(i, n, a.width) store_part(y + i, load_part(x + i, n) * scale * load_part(a.w + i, n), n);
  }
}

}  // namespace lily::ops::LILY_ISA
