#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

std::int64_t add_units(const AddArgs& a) { return div_up(a.rows * a.width, kElementBlock); }

void add_run(const AddArgs& a, std::int64_t begin, std::int64_t end, CpuScratch&) {
  const std::int64_t total = a.rows * a.width;
  const std::int64_t first = begin * kElementBlock, last = end * kElementBlock < total ? end * kElementBlock : total;
  const float* y = a.y + first;
  float* residual = a.residual + first;
  LILY_FOR_LANES(i, n, last - first) store_part(residual + i, load_part(residual + i, n) + load_part(y + i, n), n);
}

}  // namespace lily::ops::LILY_ISA
