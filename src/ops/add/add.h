// add: reads y, residual; writes residual.
#pragma once
#include "ops/pass.h"

namespace lily::ops {
/// residual += y
struct AddArgs {
  const float* y;
  float* residual;
  std::int64_t rows, width;
};
AddArgs bind_add(const plan::Op& op, const Pass& pass);
void add_ref(const AddArgs& a);
}  // namespace lily::ops
