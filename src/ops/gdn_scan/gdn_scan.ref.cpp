#include "ops/gdn_scan/gdn_scan.h"

#include <cmath>
#include <vector>

namespace lily::ops {

GdnScanArgs bind_gdn_scan(const plan::Op& op, const Pass& pass) {
  const ModelShape& s = *pass.shape;
  return {.qkv = pass.at<const float>(op.reads[0]),
          .g = pass.at<const float>(op.reads[1]),
          .beta = pass.at<const float>(op.reads[2]),
          .o = pass.at<float>(op.writes[0]),
          .segments = pass.segments,
          .gdn_layer = s.index_in_kind(op.layer),
          .qkv_stride = s.conv_channels(),
          .key_heads = s.gdn_key_heads,
          .value_heads = s.gdn_value_heads,
          .key_dim = s.gdn_key_dim,
          .value_dim = s.gdn_value_dim,
          .register_scan = pass.techniques.register_scan};
}

namespace {

// One token of one value head: S [K, V] in place, o [V].
void step(float* s, const float* q, const float* k, const float* v, float g, float beta, float* o, int K, int V) {
  const float decay = std::exp(g);
  std::vector<float> predicted(std::size_t(V), 0.0f);
  for (int i = 0; i < K; ++i)
    for (int j = 0; j < V; ++j) {
      s[i * V + j] *= decay;
      predicted[std::size_t(j)] += s[i * V + j] * k[i];
    }
  for (int j = 0; j < V; ++j) o[j] = 0;
  for (int i = 0; i < K; ++i)
    for (int j = 0; j < V; ++j) {
      s[i * V + j] += k[i] * (beta * (v[j] - predicted[std::size_t(j)]));
      o[j] += s[i * V + j] * q[i];
    }
}

}  // namespace

void gdn_scan_ref(const GdnScanArgs& a) {
  const int share = a.value_heads / a.key_heads;  // value heads that one key head serves
  const std::int64_t key_width = std::int64_t(a.key_heads) * a.key_dim;
  for (const SegmentRows& seg : a.segments)
    for (int h = 0; h < a.value_heads; ++h) {
      float* state = seg.state->recurrent_of(a.gdn_layer) + std::int64_t(h) * a.key_dim * a.value_dim;
      for (int r = seg.row; r < seg.row + seg.rows; ++r) {
        const float* row = a.qkv + std::int64_t(r) * a.qkv_stride;
        const float* q = row + std::int64_t(h / share) * a.key_dim;
        const float* v = row + 2 * key_width + std::int64_t(h) * a.value_dim;
        const std::int64_t gate = std::int64_t(r) * a.value_heads + h;
        step(state, q, q + key_width, v, a.g[gate], a.beta[gate], a.o + gate * a.value_dim, a.key_dim, a.value_dim);
      }
    }
}

}  // namespace lily::ops
