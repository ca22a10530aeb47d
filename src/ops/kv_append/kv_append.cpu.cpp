#include <string.h>

#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

constexpr int kAppendChannels = 64;  // rounded at once

/// One position's key and values into `slot` of the head's K and V (StateLayout::k_index, v_index).
LILY_SIMD void append_f32(const StateLayout& l, const float* k, const float* v, std::byte* k_to, std::byte* v_to, int slot) {
  float* key = reinterpret_cast<float*>(k_to) + l.k_index(slot, 0);
  for (int j = 0; j < l.head_dim; ++j) key[j * kKvGroup] = k[j];
  memcpy(reinterpret_cast<float*>(v_to) + l.v_index(slot, 0), v, std::size_t(l.head_dim) * 4);
}

LILY_SIMD void append_bf16(const StateLayout& l, const float* k, const float* v, std::byte* k_to, std::byte* v_to, int slot) {
  alignas(64) std::uint16_t rounded[kAppendChannels];
  std::uint32_t* key = reinterpret_cast<std::uint32_t*>(k_to) + l.k_index(slot, 0) / 2;
  std::uint16_t* value = reinterpret_cast<std::uint16_t*>(v_to) + l.v_index(slot, 0);
  for (int c = 0; c < l.head_dim; c += kAppendChannels) {
    const int n = l.head_dim - c < kAppendChannels ? l.head_dim - c : kAppendChannels;
    LILY_FOR_LANES(i, lanes, n) store_bf16(rounded + i, load_part(k + c + i, lanes));  // zeros beyond n
    for (int j = 0; j < n; j += 2) memcpy(key + std::int64_t(c + j) / 2 * kKvGroup, rounded + j, 4);
    LILY_FOR_LANES(i, lanes, n) store_bf16(rounded + i, load_part(v + c + i, lanes));
    for (int j = 0; j < n; ++j) value[2 * (c + j)] = rounded[j];
  }
}

std::int64_t kv_append_units(const KvAppendArgs& a) {  // a unit is a row
  const SegmentRows& last = a.segments.data()[a.segments.size() - 1];
  return last.row + last.rows;
}

void kv_append_run(const KvAppendArgs& a, std::int64_t begin, std::int64_t end, CpuScratch&) {
  for (std::int64_t r = begin; r < end; ++r) {
    const SegmentRows& seg = segment_of(a.segments.data(), int(r));
    const StateLayout& layout = seg.state->layout;
    const std::int64_t position = seg.position + (r - seg.row);
    const int slot = int(position % kKvBlockTokens);
    std::byte* block = seg.state->block_data.data()[position / kKvBlockTokens];
    for (int h = 0; h < a.kv_heads; ++h) {
      const float *k = a.k + (r * a.kv_heads + h) * a.head_dim, *v = a.v + (r * a.kv_heads + h) * a.head_dim;
      std::byte* k_to = block + layout.kv_offset(a.attention_layer, false, h);
      std::byte* v_to = block + layout.kv_offset(a.attention_layer, true, h);
      if (layout.kv_type == DType::bf16) append_bf16(layout, k, v, k_to, v_to, slot);
      else append_f32(layout, k, v, k_to, v_to, slot);
    }
  }
}

}  // namespace lily::ops::LILY_ISA
