// quantize_rows: reads x (float32 rows); writes q (bytes, plan/quant_layout.h). op.activations says with how many terms.
#pragma once
#include "ops/pass.h"
#include "plan/quant_layout.h"

namespace lily::ops {
struct QuantizeRowsArgs {
  const float* x;  // [rows, layout.width]
  std::byte* q;    // [rows, layout.row_bytes()]
  int rows;
  QuantLayout layout;
};
QuantizeRowsArgs bind_quantize_rows(const plan::Op& op, const Pass& pass);
void quantize_rows_ref(const QuantizeRowsArgs& a);
}  // namespace lily::ops
