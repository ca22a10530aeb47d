// The reference matrix product: a weight row dequantised to float32, float32 sums over 4 interleaved lanes.
#pragma once

#include <span>
#include <vector>

#include "ops/quantize_rows/dequantize.h"

namespace lily::ops {

/// out[r] = Σ w[i]·x[r][i] over n, by fused multiply-adds into 4 running float32 sums, which are added pairwise at the end.
void dots_ref(const float* w, std::span<const float* const> x, std::int64_t n, float* out);

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
