// gdn_gates: reads a, b; writes g, beta. weights: a_log, dt_bias.
#pragma once
#include "ops/pass.h"

namespace lily::ops {
/// beta = sigmoid(b); g = −exp(A_log)·softplus(a + dt_bias). Per value head, in float32.
struct GdnGatesArgs {
  const float *a, *b;              // [rows, heads]
  const float *a_log, *dt_bias;    // [heads]
  float *g, *beta;                 // [rows, heads]
  int rows, heads;
};
GdnGatesArgs bind_gdn_gates(const plan::Op& op, const Pass& pass);
void gdn_gates_ref(const GdnGatesArgs& a);
}  // namespace lily::ops
