#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

constexpr std::int64_t kCombineColumns = 512;  // a unit is a block of columns of one row

std::int64_t moe_combine_units(const MoeCombineArgs& a) { return a.rows * div_up(a.width, kCombineColumns); }

void moe_combine_run(const MoeCombineArgs& a, std::int64_t begin, std::int64_t end, CpuScratch&) {
  const std::int64_t parts = div_up(a.width, kCombineColumns);
  for (std::int64_t u = begin; u < end; ++u) {
    const std::int64_t row = u / parts, c0 = u % parts * kCombineColumns;
    const std::int64_t columns = a.width - c0 < kCombineColumns ? a.width - c0 : kCombineColumns;
    const float *d = a.d + row * a.k * a.width + c0, *shared = a.shared + row * a.width + c0;
    const float* p = a.weight + row * a.k;
    float* residual = a.residual + row * a.width + c0;
    const F32 gate = sigmoid(set1(a.shared_gate[row]));
    LILY_FOR_LANES(i, n, columns) {
      F32 sum = set1(p[0]) * load_part(d + i, n);
      for (int s = 1; s < a.k; ++s) sum = fma(set1(p[s]), load_part(d + std::int64_t(s) * a.width + i, n), sum);
      sum = fma(gate, load_part(shared + i, n), sum);
      store_part(residual + i, load_part(residual + i, n) + sum, n);
    }
  }
}

}  // namespace lily::ops::LILY_ISA
