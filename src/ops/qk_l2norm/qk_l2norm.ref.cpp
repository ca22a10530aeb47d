#include "ops/qk_l2norm/qk_l2norm.h"

#include <cmath>

namespace lily::ops {

QkL2NormArgs bind_qk_l2norm(const plan::Op& op, const Pass& pass) {
  return {.qkv = pass.at<float>(op.writes[0]),
          .rows = pass.rows,
          .stride = pass.shape->conv_channels(),
          .heads = pass.shape->gdn_key_heads,
          .dim = pass.shape->gdn_key_dim};
}

void qk_l2norm_ref(const QkL2NormArgs& a) {
  const float q_scale = 1.0f / std::sqrt(float(a.dim));
  for (int r = 0; r < a.rows; ++r)
    for (int h = 0; h < 2 * a.heads; ++h) {  // q heads, then k heads
      float* v = a.qkv + std::int64_t(r) * a.stride + std::int64_t(h) * a.dim;
      double sum = 0;
      for (int i = 0; i < a.dim; ++i) sum += double(v[i]) * v[i];
      const float scale = 1.0f / std::sqrt(float(sum) + 1e-6f) * (h < a.heads ? q_scale : 1.0f);
      for (int i = 0; i < a.dim; ++i) v[i] *= scale;
    }
}

}  // namespace lily::ops
