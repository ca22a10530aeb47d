#include "ops/silu_mul/silu_mul.h"

#include "ops/ref_math.h"

namespace lily::ops {

SiluMulArgs bind_silu_mul(const plan::Op& op, const Pass& pass) {
  return {.gate = pass.at<const float>(op.reads[0]),
          .up = pass.at<const float>(op.reads[1]),
          .h = pass.at<float>(op.writes[0]),
          .rows = pass.rows_of(op.writes[0]),
          .width = pass.plan->buffers[op.writes[0]].width};
}

void silu_mul_ref(const SiluMulArgs& a) {
  for (std::int64_t i = 0; i < a.rows * a.width; ++i) a.h[i] = silu_ref(a.gate[i]) * a.up[i];
}

}  // namespace lily::ops
