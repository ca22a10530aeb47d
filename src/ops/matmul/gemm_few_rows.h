// Few rows of input: a block's 4-bit codes are multiplied as they lie, since laying a panel out costs as much as several rows do.
//
// 16 bytes of each of four weight rows are one vector, and four of those are kLanes rows. A segment's eight vectors stay in registers,
// their nibbles apart, while all rows of input pass: 16 bytes of theirs, broadcast, meet each. A lane's sum is then a quarter of a weight
// row's. A transposing sum of the four vectors has a weight row in each lane, as the sums of a panel's tiles have, and goes on as they do
// (gemm.cpu.cpp): the same integers, the same additions, the same bits.
#pragma once

#include "ops/matmul/gemm_panel.h"

#if defined(__AVX512F__)
namespace lily::ops::LILY_ISA {

// Up to how many rows of input that is faster than panels, paired and others (ops/linear/NOTES.md).
constexpr int kFewerThanPaired = 8, kFewRows = 12;
/// For n weight rows and m rows of input, whose panels would have that form.
LILY_SIMD bool takes_few_rows(Form form, const Matrix& w, int n, const InputRows& in, int m) {
  return in.techniques.few_rows && m <= (form == Form::paired ? kFewerThanPaired : kFewRows) && n % kLanes == 0 && is_plain(w, in);
}

// Columns k … k + cols of kLanes weight rows from r0, added to out[i·kBlockRows + lane] of rows of input i < m; k 0: out begins at
// zero. scales, biases: of these columns, [group][kBlockRows].
static void few_rows_vector(const Matrix& w, std::int64_t r0, std::int64_t k, std::int64_t cols, const QuantLayout& layout,
                            const std::byte* const* rows, int m, const float* scales, const float* biases, Ahead* ahead, float* out) {
  const std::int64_t odd = layout.width / 2, stride = w.row_bytes;
  const Segments segments = segments_of(int(w.group), int(cols));
  const std::byte* codes = w.data + r0 * stride + k / 2;
  std::int64_t x_at = k / 2, scale_at = layout.scale_offset() + k / kQuantGroup * 4, sum_at = layout.sum_offset(1, int(w.group)) + k / w.group * 4;
  for (int s = 0; s < segments.count; ++s, codes += kQuantGroup / 2, x_at += kQuantGroup / 2, scale_at += 4) {
    ask(ahead, ahead->rate);
    Bytes low[2][4], high[2][4];  // of 32 columns each
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h)
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const Bytes both = four_rows(codes + j * stride + 16 * h, stride);
        low[h][j] = low_nibbles(both), high[h][j] = high_nibbles(both);
      }
    const bool first = k == 0 && s == 0, group_end = ((s + 1) & (segments.group_ends - 1)) == 0;
    const F32 scale = load(scales), bias = load(biases);
    for (int i = 0; i < m; ++i) {
      const std::byte *row = rows[i], *x = row + x_at;
      Dot<false> dot[4];
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const Bytes x_even = broadcast16(x + 16 * h), x_odd = broadcast16(x + 16 * h + odd);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) dot[j].step(low[h][j], x_even), dot[j].step(high[h][j], x_odd);
      }
      float* to = out + i * kBlockRows;
      const F32 x_scale = set1(*reinterpret_cast<const float*>(row + scale_at)), x_sum = set1(*reinterpret_cast<const float*>(row + sum_at));
      const I32 total = transposed_sum({dot[0].total(), dot[1].total(), dot[2].total(), dot[3].total()});
      const F32 sum = fma(to_float(total), scale * x_scale, first ? zero() : load(to));
      store(to, group_end ? fma(bias, x_sum, sum) : sum);
    }
    if (group_end) scales += kBlockRows, biases += kBlockRows, sum_at += 4;
  }
}

// gemm_block of few rows. scratch: a panel whose scales and biases are free.
static void few_rows_block(const Matrix& w, std::int64_t r0, int n, const InputRows& in, const std::byte* const* rows, int m,
                           const NextRows& next, const Panel& scratch, float* out) {
  Ahead ahead = ahead_of(next, n / kLanes * int(w.cols / kQuantGroup));
  for (int at = 0; at < n; at += kLanes)
    for (std::int64_t k = 0; k < w.cols; k += kMostPanelCols) {
      const std::int64_t cols = w.cols - k < kMostPanelCols ? w.cols - k : std::int64_t(kMostPanelCols), row = r0 + at;
      unpack_sides(w, row, r0 + n, k, cols, scratch.scales, scratch.biases);
      few_rows_vector(w, row, k, cols, in.layout, rows, m, scratch.scales, scratch.biases, &ahead, out + at);
    }
}

}  // namespace lily::ops::LILY_ISA
#endif
