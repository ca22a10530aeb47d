#include <string.h>

#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

LILY_SIMD float scalar_of(const std::byte* base, std::int64_t i, DType type) {
  if (type == DType::f32) {
    float f;
    memcpy(&f, base + 4 * i, 4);
    return f;
  }
  std::uint16_t h;
  memcpy(&h, base + 2 * i, 2);
  return type == DType::f16 ? f16_to_float(h) : bf16_to_float(h);
}

// Code k of a row: bits k·bits … of a little-endian string. Reads no byte beyond the row.
LILY_SIMD std::uint32_t code_of(const std::byte* row, std::int64_t k, int bits) {
  const std::int64_t bit = k * bits;
  const std::byte* p = row + bit / 8;
  const int shift = int(bit % 8);
  std::uint32_t u = std::uint32_t(p[0]);
  if (shift + bits > 8) u |= std::uint32_t(p[1]) << 8;
  return u >> shift & ((1u << bits) - 1u);
}

std::int64_t embed_units(const EmbedArgs& a) { return a.rows; }  // a unit is a row

void embed_run(const EmbedArgs& a, std::int64_t begin, std::int64_t end, CpuScratch&) {
  const Matrix& t = a.table;
  for (std::int64_t r = begin; r < end; ++r) {
    const std::byte* row = t.data + a.ids[r] * t.row_bytes;
    float* x = a.x + r * a.width;
    if (!t.quantized()) {
      for (int k = 0; k < a.width; ++k) x[k] = scalar_of(row, k, t.plain);
      continue;
    }
    const std::byte* scales = t.scales + a.ids[r] * t.scale_row_bytes;
    const std::byte* biases = t.biases + a.ids[r] * t.scale_row_bytes;
    for (int g = 0; g * t.group < a.width; ++g) {
      const float scale = scalar_of(scales, g, t.scale_type), bias = scalar_of(biases, g, t.scale_type);
      const int last = (g + 1) * t.group < a.width ? (g + 1) * t.group : a.width;
      for (int k = g * t.group; k < last; ++k) x[k] = scale * float(code_of(row, k, t.bits)) + bias;
    }
  }
}

}  // namespace lily::ops::LILY_ISA
