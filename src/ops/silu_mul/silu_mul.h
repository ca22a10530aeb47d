// silu_mul: reads gate, up; writes h.
#pragma once
#include "ops/pass.h"

namespace lily::ops {
/// h = silu(gate)·up, silu(x) = x·sigmoid(x)
struct SiluMulArgs {
  const float *gate, *up;
  float* h;  // may be gate
  std::int64_t rows, width;
};
SiluMulArgs bind_silu_mul(const plan::Op& op, const Pass& pass);
void silu_mul_ref(const SiluMulArgs& a);
}  // namespace lily::ops
