// qk_norm_rope: reads qg (q and gate interleaved head by head), k; writes q, gate, k (k in place). weights: q_norm, k_norm.
#pragma once
#include "ops/pass.h"

#include <cmath>

namespace lily::ops {
/// theta^(−2j/rotary_dim) in float32, each step rounded.
inline float rope_frequency(double theta, int j, int rotary_dim) {
  return 1.0f / std::pow(float(theta), float(2 * j) / float(rotary_dim));
}

/// Per head: rms_norm over head_dim with its weight, then rotary embedding of the first rotary_dim channels: channel j pairs
/// with j + rotary_dim/2. The angle is a float32 product of the position and a float32 frequency, as in transformers:
/// their rounding (1e-5 of a radian at position 200, more later) belongs to what the weights were trained with.
struct QkNormRopeArgs {
  const float* qg;  // [rows, heads·2·head_dim]: head by head, head_dim of q, then head_dim of gate
  float* k;         // [rows, kv_heads·head_dim] in place
  float* q;         // [rows, heads·head_dim]
  float* gate;      // [rows, heads·head_dim]
  const float *q_norm, *k_norm;  // [head_dim]
  std::span<const SegmentRows> segments;
  int rows, heads, kv_heads, head_dim, rotary_dim;
  double theta;
  float eps;
};
QkNormRopeArgs bind_qk_norm_rope(const plan::Op& op, const Pass& pass);
void qk_norm_rope_ref(const QkNormRopeArgs& a);
}  // namespace lily::ops
