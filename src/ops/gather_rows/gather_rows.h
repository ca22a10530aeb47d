// gather_rows: reads x (token rows); writes y (output rows).
#pragma once
#include "ops/pass.h"

namespace lily::ops {
/// y[i] = x[output_row[i]]
struct GatherRowsArgs {
  const float* x;
  const std::int32_t* row;  // [rows]
  float* y;                 // [rows, width]
  int rows, width;
};
GatherRowsArgs bind_gather_rows(const plan::Op& op, const Pass& pass);
void gather_rows_ref(const GatherRowsArgs& a);
}  // namespace lily::ops
