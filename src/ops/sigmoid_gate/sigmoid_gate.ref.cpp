#include "ops/sigmoid_gate/sigmoid_gate.h"

#include "ops/ref_math.h"

namespace lily::ops {

SigmoidGateArgs bind_sigmoid_gate(const plan::Op& op, const Pass& pass) {
  return {.o = pass.at<const float>(op.reads[0]),
          .gate = pass.at<const float>(op.reads[1]),
          .y = pass.at<float>(op.writes[0]),
          .rows = pass.rows,
          .width = pass.shape->attn_width()};
}

void sigmoid_gate_ref(const SigmoidGateArgs& a) {
  for (std::int64_t i = 0; i < a.rows * a.width; ++i) a.y[i] = a.o[i] * sigmoid_ref(a.gate[i]);
}

}  // namespace lily::ops
