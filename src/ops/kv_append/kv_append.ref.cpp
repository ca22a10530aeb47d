#include "ops/kv_append/kv_append.h"

#include "base/half.h"

namespace lily::ops {

KvAppendArgs bind_kv_append(const plan::Op& op, const Pass& pass) {
  return {.k = pass.at<const float>(op.reads[0]),
          .v = pass.at<const float>(op.reads[1]),
          .segments = pass.segments,
          .attention_layer = pass.shape->index_in_kind(op.layer),
          .kv_heads = pass.shape->kv_heads,
          .head_dim = pass.shape->head_dim};
}

void kv_append_ref(const KvAppendArgs& a) {
  for (const SegmentRows& seg : a.segments) {
    const StateLayout& layout = seg.state->layout;
    for (int i = 0; i < seg.rows; ++i) {
      const std::int64_t position = seg.position + i;
      std::byte* block = seg.state->block_data[std::size_t(position / kKvBlockTokens)];
      for (int which = 0; which < 2; ++which)
        for (int h = 0; h < a.kv_heads; ++h) {
          const float* from = (which ? a.v : a.k) + (std::int64_t(seg.row + i) * a.kv_heads + h) * a.head_dim;
          std::byte* head = block + layout.kv_offset(a.attention_layer, which == 1, h);
          const std::int64_t at = (position % kKvBlockTokens) * a.head_dim;
          for (int j = 0; j < a.head_dim; ++j) {
            if (layout.kv_type == DType::f32)
              reinterpret_cast<float*>(head)[at + j] = from[j];
            else
              reinterpret_cast<std::uint16_t*>(head)[at + j] = float_to_bf16(from[j]);
          }
        }
    }
  }
}

}  // namespace lily::ops
