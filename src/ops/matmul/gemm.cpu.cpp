// Products of many quantised input rows with a matrix (prefill).
//
// A panel is 2·kLanes weight rows over kPanelCols columns, unpacked into scratch one code a byte and interleaved by dwords: a
// vector holds the same four columns (all even, or all odd, as the input is laid out) of kLanes rows. A tile multiplies a panel
// with up to kTileTokens input rows, four bytes of each broadcast. For each weight group and output:
//   t = 0; for each 32 columns: t = fma(float(exact sum), input scale, t)
//   out = fma(t, weight scale, out); out = fma(bias, input sum, out)
// in the order of the columns: that order is the whole definition of a result's bits.
#include "ops/matmul/codes.h"

namespace lily::ops::LILY_ISA {

constexpr int kPanelRows = 2 * kLanes;
constexpr int kPanelCols = 512;                   // a multiple of every group
constexpr int kParts = kPanelCols / kQuantGroup;  // input scales of a row in a panel; also the most weight groups
constexpr int kPanelBytes = kPanelRows * kPanelCols;
#if defined(__AVX512F__)
constexpr int kTileTokens = 6;  // 12 sums, 12 t, 2 weights, a broadcast: 27 of 32 registers
#elif defined(__AVX2__)
constexpr int kTileTokens = 3;  // of 16 registers
#else
constexpr int kTileTokens = 6;
#endif

// What a tile reads of the weights: a panel's codes, and scales and biases [group][kBlockRows].
struct Panel {
  const std::uint8_t* codes;
  const float *scales, *biases;
};
// … and of the input: byte k/2 of a row's even columns, and group sums [kParts].
struct TileInput {
  const std::byte* even[kTileTokens];
  std::int64_t odd;     // from there to byte k/2 of its odd columns
  std::int64_t term;    // … to the second term
  std::int64_t scales;  // … to its scales from column k on
  const float* sums;
};
// Cache lines to ask for while multiplying, `rate` for every 32 columns: evenly, since a core has few requests under way at a
// time and waits when they are all taken. The last line of the list is asked for again and again.
struct Ahead {
  const std::byte* const* line;
  const std::byte* const* last;
  int rate;
};

// The exact sums of 32 columns: 2 vectors of weight rows × T input rows.
template <bool kWide, int kTerms, int T>
LILY_SIMD void tile_dots(const std::uint8_t* codes, const TileInput& x, std::int64_t at, Dot<kWide> (&dot)[T][2]) {
#pragma GCC unroll 2
  for (int term = 0; term < kTerms; ++term) {
    if (term > 0)
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) dot[t][0].next_term(), dot[t][1].next_term();
#pragma GCC unroll 8
    for (int i = 0; i < kDotSteps; ++i) {
      const Bytes w0 = load_bytes(codes + i * 2 * kByteLanes), w1 = load_bytes(codes + i * 2 * kByteLanes + kByteLanes);
      const std::int64_t from = at + term * x.term + (i & 1) * x.odd + i / 2 * 4;
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        const Bytes b = broadcast4(x.even[t] + from);
        dot[t][0].step(w0, b);
        dot[t][1].step(w1, b);
      }
    }
  }
}

// out[t·kBlockRows + lane] over a panel's columns; `first`: out begins at zero. A weight group has `parts` times 32 columns.
template <bool kWide, int kTerms, int T>
static void gemm_tile(const Panel& w, const TileInput& x, int groups, int parts, bool first, Ahead* ahead, float* out) {
  const std::byte* const* line = ahead->line;
  const std::uint8_t* codes = w.codes;
  std::int64_t at = 0;
  int part = 0;
  for (int g = 0; g < groups; ++g) {
    F32 sum[T][2];
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) sum[t][0] = sum[t][1] = zero();
    for (int p = 0; p < parts; ++p, ++part, at += kQuantGroup / 2, codes += kDotSteps * 2 * kByteLanes) {
      for (int i = 0; i < ahead->rate; ++i, line += line < ahead->last) __builtin_prefetch(*line, 0, 2);
      Dot<kWide> dot[T][2];
      tile_dots<kWide, kTerms, T>(codes, x, at, dot);
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        const F32 s = set1(*reinterpret_cast<const float*>(x.even[t] + (x.scales + 4 * part)));
        sum[t][0] = fma(to_float(dot[t][0].total()), s, sum[t][0]);
        sum[t][1] = fma(to_float(dot[t][1].total()), s, sum[t][1]);
      }
    }
    const float *scales = w.scales + g * kBlockRows, *biases = w.biases + g * kBlockRows;
    const bool clear = first && g == 0;
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      const F32 s = set1(x.sums[t * kParts + g]);
      float* y = out + t * kBlockRows;
      const F32 y0 = clear ? zero() : load(y), y1 = clear ? zero() : load(y + kLanes);
      store(y, fma(load(biases), s, fma(sum[t][0], load(scales), y0)));
      store(y + kLanes, fma(load(biases + kLanes), s, fma(sum[t][1], load(scales + kLanes), y1)));
    }
  }
  ahead->line = line;
}

template <bool kWide, int kTerms>
LILY_SIMD void gemm_tile_any(int tokens, const Panel& w, const TileInput& x, int groups, int parts, bool first,
                             Ahead* ahead, float* out) {
  switch (tokens) {
    case 1: gemm_tile<kWide, kTerms, 1>(w, x, groups, parts, first, ahead, out); break;
    case 2: gemm_tile<kWide, kTerms, 2>(w, x, groups, parts, first, ahead, out); break;
    case 3: gemm_tile<kWide, kTerms, 3>(w, x, groups, parts, first, ahead, out); break;
#if !defined(__AVX2__) || defined(__AVX512F__)
    case 4: gemm_tile<kWide, kTerms, 4>(w, x, groups, parts, first, ahead, out); break;
    case 5: gemm_tile<kWide, kTerms, 5>(w, x, groups, parts, first, ahead, out); break;
    default: gemm_tile<kWide, kTerms, 6>(w, x, groups, parts, first, ahead, out); break;
#endif
  }
}

// kLanes rows of bytes, `stride` apart, interleaved by dwords; `nibbles`: each dword makes one of even and one of odd columns.
// out: dword i of vector v at (i·step)·2·kByteLanes.
LILY_SIMD void interleave_nibbles(const std::byte* in, std::int64_t stride, int cols, std::uint8_t* out) {
  for (int k = 0; k < cols; k += kQuantGroup, in += 16) {
    Bytes d[4];
    load_transposed(in, stride, d);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j, out += 4 * kByteLanes) {
      store_bytes(out, low_nibbles(d[j]));
      store_bytes(out + 2 * kByteLanes, high_nibbles(d[j]));
    }
  }
}
LILY_SIMD void interleave_bytes(const std::uint8_t* even, const std::uint8_t* odd, std::int64_t stride, int cols,
                                std::uint8_t* out) {
  for (int k = 0; k < cols; k += kQuantGroup, even += 16, odd += 16) {
    Bytes e[4], o[4];
    load_transposed(even, stride, e);
    load_transposed(odd, stride, o);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j, out += 4 * kByteLanes) {
      store_bytes(out, e[j]);
      store_bytes(out + 2 * kByteLanes, o[j]);
    }
  }
}

// Codes of kLanes rows from r0 (those ≥ end repeat the last), columns k … k + cols, into one vector of a panel.
static void unpack_vector(const Matrix& w, std::int64_t r0, std::int64_t end, std::int64_t k, int cols, std::uint8_t* out) {
  const std::byte* data = w.data + k * w.bits / 8;
  alignas(64) std::uint8_t buffer[kLanes * kPanelCols];
  if (w.bits == 4) {
    if (r0 + kLanes <= end) {
      interleave_nibbles(data + r0 * w.row_bytes, w.row_bytes, cols, out);
      return;
    }
    for (int i = 0; i < kLanes; ++i) {
      const std::int64_t row = r0 + i < end ? r0 + i : end - 1;
      memcpy(buffer + i * (kPanelCols / 2), data + row * w.row_bytes, std::size_t(cols / 2));
    }
    interleave_nibbles(reinterpret_cast<const std::byte*>(buffer), kPanelCols / 2, cols, out);
    return;
  }
  std::uint8_t codes[kPanelCols];
  for (int i = 0; i < kLanes; ++i) {
    const std::int64_t row = r0 + i < end ? r0 + i : end - 1;
    unpack_codes(w.data + row * w.row_bytes, w.bits, k, cols, codes);
    split_bytes(codes, cols, buffer + i * kPanelCols, buffer + i * kPanelCols + kPanelCols / 2);
  }
  interleave_bytes(buffer, buffer + kPanelCols / 2, kPanelCols, cols, out);
}

// Scales (or biases) of kLanes rows as [group][kBlockRows].
static void unpack_scales(const std::byte* from, std::int64_t row_bytes, DType type, std::int64_t r0, std::int64_t end,
                          std::int64_t g0, int groups, float* out) {
  if (type == DType::bf16 && groups % 8 == 0 && r0 + kLanes <= end) {
    const std::byte* p = from + r0 * row_bytes + g0 * 2;
    for (int g = 0; g < groups; g += 8, p += 16) {
      Bytes d[4];
      load_transposed(p, row_bytes, d);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        store(out + (g + 2 * j) * kBlockRows, low_bf16(d[j]));
        store(out + (g + 2 * j + 1) * kBlockRows, high_bf16(d[j]));
      }
    }
    return;
  }
  for (int i = 0; i < kLanes; ++i) {
    const std::byte* p = from + (r0 + i < end ? r0 + i : end - 1) * row_bytes;
    for (int g = 0; g < groups; ++g) out[g * kBlockRows + i] = load_scalar(p, type, g0 + g);
  }
}

// Sums of a row over weight groups of `parts` times 32 columns, from those over 32 columns.
LILY_SIMD void group_sums(const float* sums, int groups, int parts, float* out) {
  if (parts == 2 && groups == kParts / 2) {
    store_pair_sums(sums, out);
    return;
  }
  for (int g = 0; g < groups; ++g) {
    float s = sums[g * parts];
    for (int j = 1; j < parts; ++j) s += sums[g * parts + j];
    out[g] = s;
  }
}

// Lists the cache lines of rows at columns k … of w, and with their first columns those of their scales and biases.
static int list_lines(const Matrix& w, std::int64_t r0, int n, std::int64_t k, const std::byte** lines) {
  const std::int64_t cols = w.cols - k < kPanelCols ? w.cols - k : std::int64_t(kPanelCols), bytes = cols * w.bits / 8;
  const std::byte* p = w.data + r0 * w.row_bytes + k * w.bits / 8;
  int count = 0;
  for (int r = 0; r < n; ++r, p += w.row_bytes)
    for (std::int64_t i = 0; i < bytes; i += 64) lines[count++] = p + i;
  if (k > 0) return count;
  for (std::int64_t i = 0; i < n * w.scale_row_bytes; i += 64) {  // rows follow one another
    lines[count++] = w.scales + r0 * w.scale_row_bytes + i;
    lines[count++] = w.biases + r0 * w.scale_row_bytes + i;
  }
  return count;
}

template <bool kWide, int kTerms>
static void gemm_panels(const std::uint8_t* codes, int panels, const float* scales, const float* biases,
                        const std::byte* const* rows, const InputRows& in, std::int64_t k, int cols, int group,
                        std::int64_t scale_at, const float* x_sums, int m, Ahead ahead, int lines, float* out) {
  const int parts = group / kQuantGroup, tiles = (m + kTileTokens - 1) / kTileTokens;
  const int steps = tiles * panels * (cols / kQuantGroup);
  ahead.rate = (lines + steps - 1) / steps;
  TileInput x;
  x.odd = in.layout.width / 2;
  x.term = in.layout.width;
  x.scales = scale_at + k / kQuantGroup * 4 - k / 2;
  for (int p = 0; p < panels; ++p) {
    const Panel w = {codes + p * kPanelBytes, scales + p * kPanelRows, biases + p * kPanelRows};
    for (int i = 0, t0 = 0; i < tiles; ++i) {
      const int tokens = (m - t0 + tiles - i - 1) / (tiles - i);  // tiles of nearly equal height
      for (int t = 0; t < tokens; ++t) x.even[t] = rows[t0 + t] + k / 2;
      x.sums = x_sums + t0 * kParts;
      gemm_tile_any<kWide, kTerms>(tokens, w, x, cols / group, parts, k == 0, &ahead,
                                   out + t0 * kBlockRows + p * kPanelRows);
      t0 += tokens;
    }
  }
}

void gemm_block(const Matrix& w, std::int64_t r0, int n, const InputRows& in, int m, const NextRows& next, float* out,
                Arena arena) {
  auto* codes = arena.take<std::uint8_t>(kBlockRows * kPanelCols);
  float* scales = arena.take<float>(kParts * kBlockRows);
  float* biases = arena.take<float>(kParts * kBlockRows);
  float* x_sums = arena.take<float>(kBlockTokens * kParts);
  auto** rows = arena.take<const std::byte*>(kBlockTokens);
  auto** lines = arena.take<const std::byte*>(kBlockRows * (kPanelCols / 64 + 2) + 2 * w.scale_row_bytes);
  for (int i = 0; i < m; ++i) rows[i] = quantized_row(in, i);
  const bool two = two_terms(in), wide = w.bits > 4;
  const std::int64_t scale_at = in.layout.scale_offset(), sum_at = in.layout.sum_offset(two ? 2 : 1), end = r0 + n;
  const int panels = (n + kPanelRows - 1) / kPanelRows, group = int(w.group);
  for (std::int64_t k = 0; k < w.cols; k += kPanelCols) {
    const int cols = int(w.cols - k < kPanelCols ? w.cols - k : std::int64_t(kPanelCols));
    for (int v = 0; v < 2 * panels; ++v) {
      const std::int64_t row = r0 + v * kLanes < end ? r0 + v * kLanes : end - 1;
      unpack_vector(w, row, end, k, cols, codes + v / 2 * kPanelBytes + v % 2 * kByteLanes);
      unpack_scales(w.scales, w.scale_row_bytes, w.scale_type, row, end, k / group, cols / group, scales + v * kLanes);
      if (two)  // a sum counts in units of a 254th of the input's scale
        for (int g = 0; g < cols / group; ++g) {
          float* s = scales + g * kBlockRows + v * kLanes;
          store(s, load(s) / set1(254.0f));
        }
      unpack_scales(w.biases, w.scale_row_bytes, w.scale_type, row, end, k / group, cols / group, biases + v * kLanes);
    }
    for (int i = 0; i < m; ++i) {
      const auto* sums = reinterpret_cast<const float*>(rows[i] + sum_at) + k / kQuantGroup;
      group_sums(sums, cols / group, group / kQuantGroup, x_sums + i * kParts);
    }
    const auto run = wide ? (two ? gemm_panels<true, 2> : gemm_panels<true, 1>)
                          : (two ? gemm_panels<false, 2> : gemm_panels<false, 1>);
    int count = 0;
    if (k + cols < w.cols) count = list_lines(w, r0, n, k + cols, lines);
    else if (next.n > 0) count = list_lines(*next.w, next.r0, next.n, 0, lines);
    const Ahead ahead = {lines, lines + (count > 0 ? count - 1 : 0), 0};
    run(codes, panels, scales, biases, rows, in, k, cols, group, scale_at, x_sums, m, ahead, count, out);
  }
}

void product_block(const Matrix& w, std::int64_t r0, int n, const InputRows& in, int m, bool decode, const NextRows& next,
                   float* out, Arena arena) {
  if (in.activations == plan::Activations::f32) {
    dense_block(w, r0, n, in, m, out, arena);
  } else if (!decode) {
    gemm_block(w, r0, n, in, m, next, out, arena);
  } else {
    for (int i = 0; i < m; i += kGemvRows) {
      InputRows part = in;
      part.first += i;
      if (in.pairs) part.pairs += i;
      Arena local = arena;
      GemvInput input;
      gemv_prepare(part, m - i < kGemvRows ? m - i : kGemvRows, w.cols, w.group, &input, &local);
      gemv_block(w, r0, n, input, next, out + i * kBlockRows, local);
    }
  }
}

}  // namespace lily::ops::LILY_ISA
