#include "ops/moe_combine/moe_combine.h"

#include "ops/ref_math.h"

namespace lily::ops {

MoeCombineArgs bind_moe_combine(const plan::Op& op, const Pass& pass) {
  return {.d = pass.at<const float>(op.reads[0]),
          .weight = pass.at<const float>(op.reads[1]),
          .shared = pass.at<const float>(op.reads[2]),
          .shared_gate = pass.at<const float>(op.reads[3]),
          .residual = pass.at<float>(op.writes[0]),
          .rows = pass.rows,
          .k = pass.shape->experts_per_token,
          .width = pass.shape->hidden};
}

void moe_combine_ref(const MoeCombineArgs& a) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const float gate = sigmoid_ref(a.shared_gate[r]);
    for (int i = 0; i < a.width; ++i) {
      float sum = 0;
      for (int s = 0; s < a.k; ++s) sum += a.weight[r * a.k + s] * a.d[(r * a.k + s) * a.width + i];
      a.residual[r * a.width + i] += sum + gate * a.shared[r * a.width + i];
    }
  }
}

}  // namespace lily::ops
