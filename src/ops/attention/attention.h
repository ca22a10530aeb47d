// attention: reads q, kv (state); writes o.
#pragma once
#include "base/half.h"
#include "ops/pass.h"

namespace lily::ops {
/// o[r][h] = softmax(q[r][h]·K/sqrt(head_dim))·V over positions 0 … position of the row. Query head h reads KV head
/// h / (heads / kv_heads). Keys are walked in blocks aligned to absolute positions, so a row's bits depend on its position alone.
struct AttentionArgs {
  const float* q;  // [rows, heads·head_dim]
  float* o;        // [rows, heads·head_dim]
  std::span<const SegmentRows> segments;
  int attention_layer;
  int rows, heads, kv_heads, head_dim;
  bool decode;
  bool paired = true;  // prefill in integers multiplies two words at once, where that pays (ops/techniques.h, paired-columns)
  bool packed = true;  // all query heads of a KV head share one pass over the keys; false: one after another (ops/techniques.h)
  // Room for the CPU's decode to share one row among threads (the back end gives it after binding; see attention.cpu.cpp):
  float* partial = nullptr;         // attention_partial_floats(a); null: one thread walks a row's keys
  std::int32_t* finished = nullptr;  // [rows · kv_heads], zero before and after each call
};

/// Positions of the ranges that a decode row's keys are cut into: a function of how many keys the row has.
LILY_ALWAYS_INLINE std::int64_t attention_range(std::int64_t keys) { return keys <= 8192 ? 512 : 2048; }
/// Floats of one (row, KV head, range): for each of its query heads head_dim values in whole vectors, a maximum and a sum.
LILY_ALWAYS_INLINE std::int64_t attention_partial_stride(const AttentionArgs& a) {
  return (a.heads / a.kv_heads * ((a.head_dim + 31) / 32 * 32 + std::int64_t(2)) + 15) / 16 * 16;
}
/// Most ranges that a row of the pass has.
LILY_ALWAYS_INLINE std::int64_t attention_ranges(const AttentionArgs& a) {
  std::int64_t most = 1;
  const SegmentRows* seg = a.segments.data();
  for (std::size_t s = 0; s < a.segments.size(); ++s) {
    for (std::int64_t keys = seg[s].position + 1; keys <= seg[s].position + seg[s].rows; ++keys) {
      const std::int64_t n = (keys + attention_range(keys) - 1) / attention_range(keys);
      if (n > most) most = n;
    }
  }
  return most;
}
LILY_ALWAYS_INLINE std::int64_t attention_partial_floats(const AttentionArgs& a) {
  return a.rows * a.kv_heads * attention_ranges(a) * attention_partial_stride(a);
}
AttentionArgs bind_attention(const plan::Op& op, const Pass& pass);
void attention_ref(const AttentionArgs& a);
}  // namespace lily::ops
