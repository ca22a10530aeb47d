// kv_append: reads k, v; writes kv (state).
#pragma once
#include "ops/pass.h"

namespace lily::ops {
/// Stores k and v of each row at its position of the segment's KV blocks, rounded to the cache's type. The blocks exist.
struct KvAppendArgs {
  const float *k, *v;  // [rows, kv_heads·head_dim]
  std::span<const SegmentRows> segments;
  int attention_layer;
  int kv_heads, head_dim;
};
KvAppendArgs bind_kv_append(const plan::Op& op, const Pass& pass);
void kv_append_ref(const KvAppendArgs& a);
}  // namespace lily::ops
