#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

std::int64_t silu_mul_units(const SiluMulArgs& a) { return div_up(a.rows * a.width, kElementBlock); }

void silu_mul_run(const SiluMulArgs& a, std::int64_t begin, std::int64_t end, CpuScratch&) {
  const std::int64_t total = a.rows * a.width;
  const std::int64_t first = begin * kElementBlock, last = end * kElementBlock < total ? end * kElementBlock : total;
  const float *gate = a.gate + first, *up = a.up + first;
  float* h = a.h + first;
  LILY_FOR_LANES(i, n, last - first) store_part(h + i, silu(load_part(gate + i, n)) * load_part(up + i, n), n);
}

}  // namespace lily::ops::LILY_ISA
