// attention: reads q, kv (state); writes o.
#pragma once
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
};
AttentionArgs bind_attention(const plan::Op& op, const Pass& pass);
void attention_ref(const AttentionArgs& a);
}  // namespace lily::ops
