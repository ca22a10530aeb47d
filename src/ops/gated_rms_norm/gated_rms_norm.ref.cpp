#include "ops/gated_rms_norm/gated_rms_norm.h"

#include "ops/ref_math.h"

namespace lily::ops {

GatedRmsNormArgs bind_gated_rms_norm(const plan::Op& op, const Pass& pass) {
  return {.o = pass.at<const float>(op.reads[0]),
          .z = pass.at<const float>(op.reads[1]),
          .w = pass.weight(op).vector(),
          .y = pass.at<float>(op.writes[0]),
          .rows = pass.rows,
          .heads = pass.shape->gdn_value_heads,
          .dim = pass.shape->gdn_value_dim,
          .eps = pass.shape->rms_eps};
}

void gated_rms_norm_ref(const GatedRmsNormArgs& a) {
  for (std::int64_t i = 0; i < std::int64_t(a.rows) * a.heads; ++i) {
    const float* o = a.o + i * a.dim;
    const float* z = a.z + i * a.dim;
    double sum = 0;
    for (int j = 0; j < a.dim; ++j) sum += double(o[j]) * o[j];
    const float scale = 1.0f / std::sqrt(float(sum / a.dim) + a.eps);
    for (int j = 0; j < a.dim; ++j) a.y[i * a.dim + j] = o[j] * scale * a.w[j] * silu_ref(z[j]);
  }
}

}  // namespace lily::ops
