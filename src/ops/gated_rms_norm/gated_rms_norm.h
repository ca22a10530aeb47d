// gated_rms_norm: reads o, z; writes y. weights: gdn_norm [dim].
#pragma once
#include "ops/pass.h"

namespace lily::ops {
/// Per value head: y = o·rsqrt(mean(o²) + eps)·w·silu(z).
struct GatedRmsNormArgs {
  const float *o, *z;  // [rows, heads·dim]
  const float* w;      // [dim]
  float* y;            // [rows, heads·dim]; may be o
  int rows, heads, dim;
  float eps;
};
GatedRmsNormArgs bind_gated_rms_norm(const plan::Op& op, const Pass& pass);
void gated_rms_norm_ref(const GatedRmsNormArgs& a);
}  // namespace lily::ops
