#include "ops/attention/attention.h"

#include <cmath>
#include <vector>

#include "base/half.h"

namespace lily::ops {

AttentionArgs bind_attention(const plan::Op& op, const Pass& pass) {
  return {.q = pass.at<const float>(op.reads[0]),
          .o = pass.at<float>(op.writes[0]),
          .segments = pass.segments,
          .attention_layer = pass.shape->index_in_kind(op.layer),
          .rows = pass.rows,
          .heads = pass.shape->attn_heads,
          .kv_heads = pass.shape->kv_heads,
          .head_dim = pass.shape->head_dim,
          .decode = pass.plan->phase == plan::Phase::decode,
          .paired = pass.techniques.paired_columns,
          .packed = pass.techniques.packed_attention};
}

namespace {

// K or V of one position as float32.
void load_kv(const SequenceState& state, int layer, bool v, int head, std::int64_t position, int dim, float* out) {
  const StateLayout& l = state.layout;
  const std::byte* base = state.block_data[std::size_t(position / kKvBlockTokens)] + l.kv_offset(layer, v, head);
  const int slot = int(position % kKvBlockTokens);
  for (int j = 0; j < dim; ++j) {
    const std::int64_t at = v ? l.v_index(slot, j) : l.k_index(slot, j);
    out[j] = l.kv_type == DType::f32 ? reinterpret_cast<const float*>(base)[at]
                                     : bf16_to_float(reinterpret_cast<const std::uint16_t*>(base)[at]);
  }
}

}  // namespace

void attention_ref(const AttentionArgs& a) {
  const int share = a.heads / a.kv_heads, dim = a.head_dim;
  const float scale = 1.0f / std::sqrt(float(dim));
  std::vector<float> kv(std::size_t(dim), 0.0f), p;
  for (const SegmentRows& seg : a.segments)
    for (int i = 0; i < seg.rows; ++i)
      for (int h = 0; h < a.heads; ++h) {
        const std::int64_t keys = seg.position + i + 1, at = (std::int64_t(seg.row + i) * a.heads + h) * dim;
        const float* q = a.q + at;
        float* o = a.o + at;
        p.assign(std::size_t(keys), 0.0f);
        float largest = -INFINITY;
        for (std::int64_t n = 0; n < keys; ++n) {
          load_kv(*seg.state, a.attention_layer, false, h / share, n, dim, kv.data());
          float dot = 0;
          for (int j = 0; j < dim; ++j) dot += q[j] * kv[std::size_t(j)];
          p[std::size_t(n)] = dot * scale;
          largest = std::max(largest, p[std::size_t(n)]);
        }
        float sum = 0;
        for (float& e : p) sum += e = std::exp(e - largest);
        for (int j = 0; j < dim; ++j) o[j] = 0;
        for (std::int64_t n = 0; n < keys; ++n) {
          load_kv(*seg.state, a.attention_layer, true, h / share, n, dim, kv.data());
          for (int j = 0; j < dim; ++j) o[j] += p[std::size_t(n)] * kv[std::size_t(j)];
        }
        for (int j = 0; j < dim; ++j) o[j] /= sum;
      }
}

}  // namespace lily::ops
