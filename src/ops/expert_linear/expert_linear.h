// expert_linear: reads x, groups; writes y. weights: a stack of matrices, one an expert.
// expert_in:     reads x, groups; writes h. weights: expert_gate_proj, expert_up_proj.
// expert_out:    reads h, groups, weight, shared, shared_gate, residual; writes residual. weights: expert_down_proj.
#pragma once
#include "ops/pass.h"
#include "ops/quantize_rows/quantize_rows.h"

namespace lily::ops {
/// y[pair] = W[expert]·x[row of the pair], pair = token·k + slot.
/// x has a row a token (x_per_pair false: gate and up) or a row a pair (true: down).
struct ExpertLinearArgs {
  plan::Activations activations;
  const float* x;        // f32 rows, or
  const std::byte* q;    // quantised rows
  QuantLayout layout;
  bool x_per_pair;
  Matrix w;              // count = experts
  const std::int32_t* groups;  // expert_sort's
  float* y;              // [rows·k, w.rows]
  int rows, k;
  bool decode;
  Techniques techniques = {};
};
ExpertLinearArgs bind_expert_linear(const plan::Op& op, const Pass& pass);
void expert_linear_ref(const ExpertLinearArgs& a);

/// h[pair] = silu(gate[expert]·x[token])·(up[expert]·x[token])
struct ExpertInArgs {
  plan::Activations activations;
  const float* x;
  const std::byte* q;
  QuantLayout layout;
  Matrix gate, up;
  const std::int32_t* groups;
  float* h;              // [rows·k, gate.rows]
  int rows, k;
  bool decode;
  Techniques techniques = {};
};
ExpertInArgs bind_expert_in(const plan::Op& op, const Pass& pass);

/// residual[token] += Σ_slots weight·(down[expert]·h[pair]) in order of expert index, + sigmoid(shared_gate)·shared[token]:
/// y = residual + ((…((p0·d0 + p1·d1) + p2·d2) …) + sigmoid(shared_gate)·shared), as moe_combine rounds it.
struct ExpertOutArgs {
  plan::Activations activations;
  const float* h;
  const std::byte* q;
  QuantLayout layout;
  Matrix down;
  const std::int32_t* groups;
  const float* weight;       // [rows, k]
  const float* shared;       // [rows, down.rows]
  const float* shared_gate;  // [rows, 1] before the sigmoid
  float* residual;           // [rows, down.rows]
  int rows, k;
  bool decode;
  Techniques techniques = {};
};
ExpertOutArgs bind_expert_out(const plan::Op& op, const Pass& pass);
}  // namespace lily::ops
