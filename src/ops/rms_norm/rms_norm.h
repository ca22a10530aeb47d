// rms_norm: reads x; writes y. weights: a norm vector of the row's width.
#pragma once
#include "ops/pass.h"

namespace lily::ops {
/// y = x · rsqrt(mean(x²) + eps) · w, row by row, in float32.
struct RmsNormArgs {
  const float* x;  // [rows, width]
  const float* w;  // [width]
  float* y;        // [rows, width]; may be x
  int rows, width;
  float eps;
};
RmsNormArgs bind_rms_norm(const plan::Op& op, const Pass& pass);
void rms_norm_ref(const RmsNormArgs& a);
}  // namespace lily::ops
