// sigmoid_gate: reads o, gate; writes y.
#pragma once
#include "ops/pass.h"

namespace lily::ops {
/// y = o·sigmoid(gate)
struct SigmoidGateArgs {
  const float *o, *gate;
  float* y;  // may be o
  std::int64_t rows, width;
};
SigmoidGateArgs bind_sigmoid_gate(const plan::Op& op, const Pass& pass);
void sigmoid_gate_ref(const SigmoidGateArgs& a);
}  // namespace lily::ops
