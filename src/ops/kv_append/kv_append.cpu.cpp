#include <string.h>

#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

LILY_SIMD void append_head(const float* x, std::byte* to, std::int64_t slot, int dim, bool bf16) {
  if (!bf16) {
    memcpy(to + slot * dim * 4, x, std::size_t(dim) * 4);
    return;
  }
  std::uint16_t* out = reinterpret_cast<std::uint16_t*>(to) + slot * dim;
  int i = 0;
  for (; i + kLanes <= dim; i += kLanes) store_bf16(out + i, load(x + i));
  for (; i < dim; ++i) out[i] = float_to_bf16(x[i]);
}

std::int64_t kv_append_units(const KvAppendArgs& a) {  // a unit is a row
  const SegmentRows& last = a.segments.data()[a.segments.size() - 1];
  return last.row + last.rows;
}

void kv_append_run(const KvAppendArgs& a, std::int64_t begin, std::int64_t end, CpuScratch&) {
  for (std::int64_t r = begin; r < end; ++r) {
    const SegmentRows& seg = segment_of(a.segments.data(), int(r));
    const StateLayout& layout = seg.state->layout;
    const std::int64_t position = seg.position + (r - seg.row), slot = position % kKvBlockTokens;
    std::byte* block = seg.state->block_data.data()[position / kKvBlockTokens];
    for (int h = 0; h < a.kv_heads; ++h) {
      const std::int64_t at = (r * a.kv_heads + h) * a.head_dim;
      const bool bf16 = layout.kv_type == DType::bf16;
      append_head(a.k + at, block + layout.kv_offset(a.attention_layer, false, h), slot, a.head_dim, bf16);
      append_head(a.v + at, block + layout.kv_offset(a.attention_layer, true, h), slot, a.head_dim, bf16);
    }
  }
}

}  // namespace lily::ops::LILY_ISA
