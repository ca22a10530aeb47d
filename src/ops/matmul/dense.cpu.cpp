// Products with float32 input rows: the exact mode, matrices stored as floats, and columns that are not whole groups of 32.
//
// kDenseRows weight rows are dequantised into scratch (scale·code + bias, each operation rounded, as dequantize_row has it),
// then multiplied with tiles of 4 × 4: kLanes running sums an element, columns in order, one tree at the end.
#include "ops/matmul/codes.h"

namespace lily::ops::LILY_ISA {

constexpr int kDenseRows = 16, kTile = 4;

static void dequantize(const Matrix& w, std::int64_t row, float* out, std::uint8_t* codes) {
  const std::byte* data = w.data + row * w.row_bytes;
  if (!w.quantized()) {
    load_floats(data, w.plain, w.cols, out);
    return;
  }
  unpack_codes(data, w.bits, 0, w.cols, codes);
  const std::byte *scales = w.scales + row * w.scale_row_bytes, *biases = w.biases + row * w.scale_row_bytes;
  for (std::int64_t g = 0, k = 0; k < w.cols; ++g, k += w.group) {
    const float scale = load_scalar(scales, w.scale_type, g), bias = load_scalar(biases, w.scale_type, g);
    const std::int64_t n = w.cols - k < w.group ? w.cols - k : w.group;
    for (std::int64_t i = 0; i < n; ++i) out[k + i] = scale * float(codes[k + i]) + bias;
  }
}

// out[t·kBlockRows + r] for R weight rows (`stride` apart) and T input rows.
template <int R, int T>
static void dense_tile(const float* w, std::int64_t stride, const float* const* x, std::int64_t cols, float* out) {
  F32 acc[R][T];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) acc[r][t] = zero();
  std::int64_t k = 0;
  for (; k + kLanes <= cols; k += kLanes) {
    F32 v[T];
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) v[t] = load(x[t] + k);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const F32 a = load(w + r * stride + k);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) acc[r][t] = fma(a, v[t], acc[r][t]);
    }
  }
  if (k < cols) {
    const int n = int(cols - k);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) acc[r][t] = fma(load_n(w + r * stride + k, n), load_n(x[t] + k, n), acc[r][t]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) out[t * kBlockRows + r] = sum(acc[r][t]);
}

void dense_block(const Matrix& w, std::int64_t r0, int n, const InputRows& in, int m, float* out, Arena arena) {
  const std::int64_t stride = round_up(w.cols, 16);
  float* rows = arena.take<float>(kDenseRows * stride);
  auto* codes = arena.take<std::uint8_t>(w.cols);
  for (int r = 0; r < n; r += kDenseRows) {
    const int count = n - r < kDenseRows ? n - r : kDenseRows;
    for (int i = 0; i < count; ++i) dequantize(w, r0 + r + i, rows + i * stride, codes);
    for (int t = 0; t < m; t += kTile) {
      const int tokens = m - t < kTile ? m - t : kTile;
      const float* x[kTile];
      for (int i = 0; i < tokens; ++i) x[i] = in.x + row_index(in, t + i) * in.width;
      float* to = out + t * kBlockRows + r;
      for (int i = 0; i < count;) {
        const int step = count - i >= kTile ? kTile : 1;
        const float* from = rows + i * stride;
        if (step == kTile) {
          if (tokens == 1) dense_tile<kTile, 1>(from, stride, x, w.cols, to + i);
          else if (tokens == 2) dense_tile<kTile, 2>(from, stride, x, w.cols, to + i);
          else if (tokens == 3) dense_tile<kTile, 3>(from, stride, x, w.cols, to + i);
          else dense_tile<kTile, 4>(from, stride, x, w.cols, to + i);
        } else {
          for (int j = 0; j < tokens; ++j) dense_tile<1, 1>(from, stride, x + j, w.cols, to + i + j * kBlockRows);
        }
        i += step;
      }
    }
  }
}

}  // namespace lily::ops::LILY_ISA
