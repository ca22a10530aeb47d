// Scalar functions as the reference forms use them: float32, the C library's exp.
#pragma once

#include <cmath>

namespace lily::ops {
inline float sigmoid_ref(float x) { return 1.0f / (1.0f + std::exp(-x)); }
inline float silu_ref(float x) { return x * sigmoid_ref(x); }
/// log(1 + exp(x)), without overflow.
inline float softplus_ref(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }
}  // namespace lily::ops
