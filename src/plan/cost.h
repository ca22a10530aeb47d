// Bytes that must move and operations that must happen: the denominators of every share that Lily prints.
#pragma once

#include "plan/op.h"

namespace lily::plan {

struct Cost {
  double weight_bytes = 0;  // each weight that the rows need, read once
  double state_bytes = 0;   // recurrent state and window read and written, KV read and appended
  double multiply_adds = 0; // of matrix products, attention and the recurrence
  // The same as operations (two a multiply-add), by what computes them:
  double int8_ops = 0;      // integer products: once for each int8 term of their input
  double float_ops = 0;     // attention, the recurrence, products over float32
  double bytes() const { return weight_bytes + state_bytes; }
  Cost& operator+=(const Cost& o) {
    weight_bytes += o.weight_bytes;
    state_bytes += o.state_bytes;
    multiply_adds += o.multiply_adds;
    int8_ops += o.int8_ops;
    float_ops += o.float_ops;
    return *this;
  }
};

struct CostInput {
  int rows = 1;                // tokens of the pass, of one conversation
  std::int64_t position = 0;   // tokens before the first
  int output_rows = 1;         // 0: no logits are wanted, lm_head is not read
  DType kv_type = DType::bf16;
};

/// Of one op. Experts: `rows`·k choices spread evenly touch experts·(1 − (1 − k/experts)^rows) of them.
Cost cost(const Plan& plan, const Op& op, const Weights& weights, const CostInput& in);
Cost cost(const Plan& plan, const Weights& weights, const CostInput& in);

}  // namespace lily::plan
