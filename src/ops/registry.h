// One row an op kind: how the reference runs it and how far another form may depart from it. tests/ops/op_diff_test.cpp walks this
// table: every op of compiled plans is run by the CPU's kernels and compared buffer by buffer; an op without a row, without a case
// in those plans, or whose comparison does not notice a missing row fails the test.
#pragma once

#include "ops/pass.h"

namespace lily::ops {

struct OpRow {
  plan::OpKind kind;
  /// The scalar form on bound buffers; null for fused ops, whose parts are run one after another.
  void (*run_ref)(const plan::Op&, const Pass&);
  /// Largest ‖other − ref‖/‖ref‖ of any row of any written buffer: `roundings` + `per_sqrt_n`·√n units of 2^-24, where n is the
  /// length of the sum that makes an element (rounding errors of a sum of n terms grow like √n). Both 0: bit for bit.
  double roundings = 0, per_sqrt_n = 0;
  double int16 = 0;  // of such units, instead: where a pass reads its inputs as 16-bit integers (prefill attention of a bf16 cache)
};
/// Error(internal) for a kind without a row.
const OpRow& op_row(plan::OpKind kind);

/// Runs one op of any plan as its scalar reference form (a fused op: its parts in order).
void run_reference(const plan::Op& op, const Pass& pass);

}  // namespace lily::ops
