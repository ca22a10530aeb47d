#include "ops/gdn_gates/gdn_gates.h"

#include "ops/ref_math.h"

namespace lily::ops {

GdnGatesArgs bind_gdn_gates(const plan::Op& op, const Pass& pass) {
  return {.a = pass.at<const float>(op.reads[0]),
          .b = pass.at<const float>(op.reads[1]),
          .a_log = pass.weight(op, 0).vector(),
          .dt_bias = pass.weight(op, 1).vector(),
          .g = pass.at<float>(op.writes[0]),
          .beta = pass.at<float>(op.writes[1]),
          .rows = pass.rows,
          .heads = pass.shape->gdn_value_heads};
}

void gdn_gates_ref(const GdnGatesArgs& a) {
  for (int r = 0; r < a.rows; ++r)
    for (int h = 0; h < a.heads; ++h) {
      const std::int64_t i = std::int64_t(r) * a.heads + h;
      a.beta[i] = sigmoid_ref(a.b[i]);
      a.g[i] = -std::exp(a.a_log[h]) * softplus_ref(a.a[i] + a.dt_bias[h]);
    }
}

}  // namespace lily::ops
