#include "ops/qk_norm_rope/qk_norm_rope.h"

#include <cmath>

namespace lily::ops {

QkNormRopeArgs bind_qk_norm_rope(const plan::Op& op, const Pass& pass) {
  const ModelShape& s = *pass.shape;
  return {.qg = pass.at<const float>(op.reads[0]),
          .k = pass.at<float>(op.writes[2]),
          .q = pass.at<float>(op.writes[0]),
          .gate = pass.at<float>(op.writes[1]),
          .q_norm = pass.weight(op, 0).vector(),
          .k_norm = pass.weight(op, 1).vector(),
          .segments = pass.segments,
          .rows = pass.rows,
          .heads = s.attn_heads,
          .kv_heads = s.kv_heads,
          .head_dim = s.head_dim,
          .rotary_dim = s.rotary_dim,
          .theta = s.rope_theta,
          .eps = s.rms_eps};
}

namespace {

// out = rope(rms_norm(x; w)) of one head; out may be x.
void norm_rope(const QkNormRopeArgs& a, const float* x, const float* w, std::int64_t position, float* out) {
  double sum = 0;
  for (int i = 0; i < a.head_dim; ++i) sum += double(x[i]) * x[i];
  const float scale = 1.0f / std::sqrt(float(sum / a.head_dim) + a.eps);
  for (int i = 0; i < a.head_dim; ++i) out[i] = x[i] * scale * w[i];
  const int half = a.rotary_dim / 2;
  for (int j = 0; j < half; ++j) {
    const float angle = float(position) * rope_frequency(a.theta, j, a.rotary_dim);
    const float cos = std::cos(angle), sin = std::sin(angle);
    const float first = out[j], second = out[j + half];
    out[j] = first * cos - second * sin;
    out[j + half] = second * cos + first * sin;
  }
}

}  // namespace

void qk_norm_rope_ref(const QkNormRopeArgs& a) {
  for (const SegmentRows& seg : a.segments)
    for (int i = 0; i < seg.rows; ++i) {
      const std::int64_t r = seg.row + i, position = seg.position + i;
      for (int h = 0; h < a.heads; ++h) {
        const float* qg = a.qg + (r * a.heads + h) * 2 * a.head_dim;
        float* q = a.q + (r * a.heads + h) * a.head_dim;
        norm_rope(a, qg, a.q_norm, position, q);
        for (int j = 0; j < a.head_dim; ++j) a.gate[(r * a.heads + h) * a.head_dim + j] = qg[a.head_dim + j];
      }
      for (int h = 0; h < a.kv_heads; ++h) {
        float* k = a.k + (r * a.kv_heads + h) * a.head_dim;
        norm_rope(a, k, a.k_norm, position, k);
      }
    }
}

}  // namespace lily::ops
