// The inverse of quantize_rows, for the reference forms of the products that read it.
#pragma once
#include <cstring>

#include "ops/quantize_rows/quantize_rows.h"

namespace lily::ops {
/// out[width] = the values that `activations` terms of one quantised row stand for.
inline void dequantize_quantized_row(const std::byte* row, const QuantLayout& l, plan::Activations activations, float* out) {
  const bool two = activations == plan::Activations::int16;
  const auto* scales = reinterpret_cast<const float*>(row + l.scale_offset());
  for (int k = 0; k < l.width; ++k) {
    const int q1 = std::int8_t(row[l.term_offset(0) + l.position(k)]);
    const int q2 = two ? std::int8_t(row[l.term_offset(1) + l.position(k)]) : 0;
    const float scale = scales[k / kQuantGroup];
    out[k] = two ? float(256 * q1 + q2) * (scale / 256.0f) : float(q1) * scale;
  }
}
}  // namespace lily::ops
