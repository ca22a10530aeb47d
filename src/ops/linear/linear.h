// linear, linear_add: reads x (float32 or quantised rows; linear_add: then the residual); writes y.  weights: W [out, in].
#pragma once
#include "ops/pass.h"
#include "ops/quantize_rows/quantize_rows.h"

namespace lily::ops {
/// y[r] = W·x[r], plus residual[r] in linear_add (y may be the residual).
struct LinearArgs {
  plan::Activations activations;
  const float* x;          // [rows, w.cols] when activations is f32
  const std::byte* q;      // [rows, layout.row_bytes()] otherwise
  QuantLayout layout;      // as stored: may hold more terms than `activations` uses
  Matrix w;                // [out, in]
  const float* residual;   // [rows, w.rows] or null
  float* y;                // [rows, w.rows]
  int rows;
  bool decode;             // few rows, each weight read once; results of a row do not depend on the others either way
  Techniques techniques = {};
};
LinearArgs bind_linear(const plan::Op& op, const Pass& pass);
void linear_ref(const LinearArgs& a);
}  // namespace lily::ops
