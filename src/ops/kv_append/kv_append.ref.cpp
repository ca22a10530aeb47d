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
    const auto put = [&](std::byte* head, std::int64_t at, float x) {
      if (layout.kv_type == DType::f32) reinterpret_cast<float*>(head)[at] = x;
      else reinterpret_cast<std::uint16_t*>(head)[at] = float_to_bf16(x);
    };
    for (int i = 0; i < seg.rows; ++i) {
      const std::int64_t position = seg.position + i;
      const int slot = int(position % kKvBlockTokens);
      std::byte* block = seg.state->block_data[std::size_t(position / kKvBlockTokens)];
      for (int h = 0; h < a.kv_heads; ++h) {
        const std::int64_t from = (std::int64_t(seg.row + i) * a.kv_heads + h) * a.head_dim;
        std::byte* k = block + layout.kv_offset(a.attention_layer, false, h);
        std::byte* v = block + layout.kv_offset(a.attention_layer, true, h);
        for (int j = 0; j < a.head_dim; ++j) {
          put(k, layout.k_index(slot, j), a.k[from + j]);
          put(v, layout.v_index(slot, j), a.v[from + j]);
        }
        for (int j = a.head_dim; j < layout.key_words() * layout.word_values(); ++j) put(k, layout.k_index(slot, j), 0);
      }
    }
  }
}

}  // namespace lily::ops
