// The reference matrix product: a weight row dequantised to float32, float32 sums over 16 interleaved lanes.
#pragma once

#include <vector>

#include "ops/quantize_rows/dequantize.h"

namespace lily::ops {

/// Σ a[i]·b[i] in 16 running sums, added pairwise at the end.
inline float dot_ref(const float* a, const float* b, std::int64_t n) {
  float lane[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 16; ++j) lane[j] += a[i + j] * b[i + j];
  for (int j = 0; i < n; ++i, ++j) lane[j] += a[i] * b[i];
  for (int half = 8; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) lane[j] += lane[j + half];
  return lane[0];
}

/// Rows of a product's input as float32: the rows themselves, or what quantised ones stand for.
inline std::vector<float> rows_ref(plan::Activations activations, const float* x, const std::byte* q, const QuantLayout& layout,
                                   std::int64_t rows, std::int64_t width) {
  if (activations == plan::Activations::f32) return std::vector<float>(x, x + rows * width);
  std::vector<float> out(std::size_t(rows * width));
  for (std::int64_t r = 0; r < rows; ++r)
    dequantize_quantized_row(q + r * layout.row_bytes(), layout, activations, out.data() + r * width);
  return out;
}

}  // namespace lily::ops
