#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

std::int64_t gdn_gates_units(const GdnGatesArgs& a) { return a.rows; }  // a unit is a row

void gdn_gates_run(const GdnGatesArgs& a, std::int64_t begin, std::int64_t end, CpuScratch&) {
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t at = r * a.heads;
    LILY_FOR_LANES(h, n, a.heads) {
      const F32 rate = exp(load_part(a.a_log + h, n));
      const F32 step = softplus(load_part(a.a + at + h, n) + load_part(a.dt_bias + h, n));
      store_part(a.g + at + h, zero() - rate * step, n);
      store_part(a.beta + at + h, sigmoid(load_part(a.b + at + h, n)), n);
    }
  }
}

}  // namespace lily::ops::LILY_ISA
