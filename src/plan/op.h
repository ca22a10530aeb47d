// The plan: a model's step as a flat list of ops, each naming what it reads and writes.
//
// Everything downstream works on this list alone: validation, fusion, stages, memory, the reference interpreter and the
// compiled back ends. An op kind has one folder under src/ops; the same word names folder, kernel, test and bench row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "model/weights.h"

namespace lily::plan {

/// prefill: many known tokens of one or more conversations. decode: one token of each conversation.
/// They may differ in arithmetic (docs/NUMERICS.md), never in meaning.
enum class Phase { prefill, decode };

enum class OpKind {
  embed,           // ids → residual stream
  rms_norm,        // x·rsqrt(mean x² + eps)·w
  quantize_rows,   // float rows → int8 terms with scales: what the integer matrix products read
  linear,          // y = W·x
  // Gated DeltaNet
  conv1d_silu,     // causal depthwise convolution over the window, then SiLU; moves the window on
  gdn_gates,       // beta = sigmoid(b); g = -exp(A_log)·softplus(a + dt_bias)
  qk_l2norm,       // q and k of each head to unit length, q also by 1/sqrt(dim)
  gdn_scan,        // the gated delta rule, token by token, over the recurrent state
  gated_rms_norm,  // rms_norm(o; w over a head)·silu(z)
  // full attention
  qk_norm_rope,    // split q|gate per head, rms_norm of q and k heads, rotary embedding
  kv_append,       // k and v into the cache at the token's position
  attention,       // softmax(q·k/sqrt(dim))·v over the cache, causal
  sigmoid_gate,    // o·sigmoid(gate)
  // mixture of experts
  router_topk,     // softmax over experts, the k largest, renormalised, in order of their index
  expert_sort,     // (token, slot) pairs grouped by expert: offsets and row lists
  expert_linear,   // y[token, slot] = W[expert of the slot]·x[token] (or ·x[token, slot])
  silu_mul,        // silu(gate)·up
  moe_combine,     // residual + Σ p·expert + sigmoid(shared gate)·shared
  add,             // residual + y
  gather_rows,     // the rows whose logits are wanted
  // fused (plan/fusion_table): parts hold the ops they replace
  expert_in,       // expert_linear ×2 + silu_mul
  expert_out,      // expert_linear + moe_combine
  linear_add,      // linear + add
  count_,
};
const char* op_name(OpKind kind);  // "rms_norm", …

using BufferId = int;

enum class Space {
  activation,  // in the arena, alive from its first write to its last read
  state,       // belongs to a conversation: recurrent matrix, convolution window, KV
  input,       // bound by the caller: token ids
  output,      // bound by the caller: logits
};
enum class RowSet { token, output };  // a row for each token of the pass, or for each token whose logits are wanted

struct Buffer {
  std::string name;
  Space space = Space::activation;
  RowSet rows = RowSet::token;
  DType dtype = DType::f32;
  std::int64_t width = 0;   // elements of a row; for quantised rows (u8): bytes
  int rows_per_token = 1;   // k for buffers with a row for each (token, slot)
  std::int64_t extra = 0;   // elements beside the rows (the offsets in front of expert groups)
  int layer = -1;           // Space::state: whose

  std::int64_t elements(int token_rows, int output_rows) const {
    return std::int64_t(rows == RowSet::token ? token_rows : output_rows) * rows_per_token * width + extra;
  }
  std::int64_t bytes(int token_rows, int output_rows) const {
    return elements(token_rows, output_rows) * std::int64_t(dtype_bytes(dtype));
  }
};

/// How a matrix product reads its input.
enum class Activations : std::uint8_t {
  f32,    // float32 rows
  int8,   // quantize_rows with one int8 term
  int16,  // … with two int8 terms, together nearly 16 bits
};

struct Op {
  OpKind kind{};
  std::string name;                // "L3.q_proj": unique in the plan
  int layer = -1;
  std::vector<BufferId> reads, writes;  // order is the kind's contract (src/ops/<kind>/<kind>.h); state counts
  std::vector<TensorId> weights;
  Activations activations = Activations::f32;  // linear, expert_*: how `reads[0]` is stored; quantize_rows: what it makes
  bool ends_layer = false;         // the residual stream is this layer's output after this op
  std::vector<Op> parts;           // a fused op: the ops it replaces, in order
  int stage = -1;                  // by plan/hazards: ops of one stage are independent
};

struct Plan {
  Phase phase{};
  std::vector<Buffer> buffers;
  std::vector<Op> ops;             // in an order that is correct when run one after another
  int stages = 0;
  BufferId ids = -1, logits = -1, residual = -1;

  BufferId buffer(const std::string& name) const;  // -1 when there is none
};

}  // namespace lily::plan
