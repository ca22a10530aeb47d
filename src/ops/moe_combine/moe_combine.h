// moe_combine: reads expert rows d, weight, shared, shared_gate, residual; writes residual.
#pragma once
#include "ops/pass.h"

namespace lily::ops {
/// residual += Σ_s weight[s]·d[token, s] (slots in order) + sigmoid(shared_gate)·shared
struct MoeCombineArgs {
  const float* d;            // [rows·k, width]
  const float* weight;       // [rows, k]
  const float* shared;       // [rows, width]
  const float* shared_gate;  // [rows, 1]
  float* residual;           // [rows, width]
  int rows, k, width;
};
MoeCombineArgs bind_moe_combine(const plan::Op& op, const Pass& pass);
void moe_combine_ref(const MoeCombineArgs& a);
}  // namespace lily::ops
