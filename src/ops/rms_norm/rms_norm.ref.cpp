#include "ops/rms_norm/rms_norm.h"

#include <cmath>

namespace lily::ops {

RmsNormArgs bind_rms_norm(const plan::Op& op, const Pass& pass) {
  return {.x = pass.at<const float>(op.reads[0]),
          .w = pass.weight(op).vector(),
          .y = pass.at<float>(op.writes[0]),
          .rows = pass.rows_of(op.reads[0]),
          .width = int(pass.plan->buffers[op.reads[0]].width),
          .eps = pass.shape->rms_eps};
}

void rms_norm_ref(const RmsNormArgs& a) {
  for (int r = 0; r < a.rows; ++r) {
    const float* x = a.x + std::int64_t(r) * a.width;
    float* y = a.y + std::int64_t(r) * a.width;
    double sum = 0;
    for (int i = 0; i < a.width; ++i) sum += double(x[i]) * x[i];
    const float scale = 1.0f / std::sqrt(float(sum / a.width) + a.eps);
    for (int i = 0; i < a.width; ++i) y[i] = x[i] * scale * a.w[i];
  }
}

}  // namespace lily::ops
