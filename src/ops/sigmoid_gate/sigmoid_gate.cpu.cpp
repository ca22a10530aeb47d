#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

std::int64_t sigmoid_gate_units(const SigmoidGateArgs& a) { return div_up(a.rows * a.width, kElementBlock); }

void sigmoid_gate_run(const SigmoidGateArgs& a, std::int64_t begin, std::int64_t end, CpuScratch&) {
  const std::int64_t total = a.rows * a.width;
  const std::int64_t first = begin * kElementBlock, last = end * kElementBlock < total ? end * kElementBlock : total;
  const float *o = a.o + first, *gate = a.gate + first;
  float* y = a.y + first;
  LILY_FOR_LANES(i, n, last - first) store_part(y + i, load_part(o + i, n) * sigmoid(load_part(gate + i, n)), n);
}

}  // namespace lily::ops::LILY_ISA
