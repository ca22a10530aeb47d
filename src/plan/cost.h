// Bytes that must move and operations that must happen: the denominators of every share that Lily prints.
#pragma once

#include "plan/op.h"

namespace lily::plan {

struct Cost {
  double weight_bytes = 0;  // each weight that the rows need, read once
  double state_bytes = 0;   // recurrent state and window read and written, KV read and appended
  double multiply_adds = 0; // of matrix products, attention and the recurrence
  double bytes() const { return weight_bytes + state_bytes; }
  Cost& operator+=(const Cost& o) {
    weight_bytes += o.weight_bytes;
    state_bytes += o.state_bytes;
    multiply_adds += o.multiply_adds;
    return *this;
  }
};

struct CostInput {
  int rows = 1;                // tokens of the pass, of one conversation
  std::int64_t position = 0;   // tokens before the first
  int output_rows = 1;
  DType kv_type = DType::bf16;
};

/// Of one op. Experts: `rows`·k choices spread evenly touch experts·(1 − (1 − k/experts)^rows) of them.
Cost cost(const Plan& plan, const Op& op, const Weights& weights, const CostInput& in);
Cost cost(const Plan& plan, const Weights& weights, const CostInput& in);

}  // namespace lily::plan
