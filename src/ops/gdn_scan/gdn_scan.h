// gdn_scan: reads qkv (after qk_l2norm), g, beta, recurrent (state); writes o, recurrent.
#pragma once
#include "base/half.h"
#include "ops/pass.h"

namespace lily::ops {
/// For each value head h (key head h / (value_heads / key_heads)) and token, with S [key_dim, value_dim] float32:
///   S ← exp(g)·S;  S ← S + k ⊗ (beta·(v − Sᵀk));  o = Sᵀq.
struct GdnScanArgs {
  const float* qkv;        // [rows, qkv_stride]: q [key_heads·key_dim], k, v [value_heads·value_dim]
  const float *g, *beta;   // [rows, value_heads]
  float* o;                // [rows, value_heads·value_dim]
  std::span<const SegmentRows> segments;
  int gdn_layer;           // state->recurrent_of(gdn_layer): [value_heads, key_dim, value_dim]
  int qkv_stride, key_heads, value_heads, key_dim, value_dim;
  bool register_scan = true;  // a pass keeps blocks of S at hand; false: each token walks S where it lies (ops/techniques.h)
};
/// Of the CPU's kernel: tokens whose q, k and v it gathers at once, and the most columns of S that it walks together.
inline constexpr int kScanTokens = 64, kMostScanColumns = 64;
/// Bytes of scratch that it takes for one head while it reads a prompt.
LILY_ALWAYS_INLINE std::int64_t gdn_scan_scratch_bytes(std::int64_t key_dim, std::int64_t value_dim) {
  const std::int64_t columns = (value_dim + kMostScanColumns - 1) / kMostScanColumns * kMostScanColumns;
  return 4 * (3 * kScanTokens + columns * key_dim + kScanTokens * (2 * key_dim + value_dim));
}
GdnScanArgs bind_gdn_scan(const plan::Op& op, const Pass& pass);
void gdn_scan_ref(const GdnScanArgs& a);
}  // namespace lily::ops
