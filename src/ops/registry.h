// One row an op kind: how the reference runs it. Tests walk this table, so that no op lacks a reference, cases or a tolerance.
#pragma once

#include "ops/pass.h"

namespace lily::ops {

struct OpRow {
  plan::OpKind kind;
  /// The scalar form on bound buffers; null for fused ops, whose parts are run one after another.
  void (*run_ref)(const plan::Op&, const Pass&);
};
/// Error(internal) for a kind without a row.
const OpRow& op_row(plan::OpKind kind);

/// Runs one op of any plan as its scalar reference form (a fused op: its parts in order).
void run_reference(const plan::Op& op, const Pass& pass);

}  // namespace lily::ops
