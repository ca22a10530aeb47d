// Products of many quantised input rows with a matrix (prefill).
//
// A panel is 2·kLanes weight rows over kPanelCols columns, unpacked into scratch one code a byte and interleaved by dwords: a
// vector holds the same four columns (all even, or all odd, as the input is laid out) of kLanes rows. A tile multiplies a panel
// with up to kTileTokens input rows, four bytes of each broadcast. Columns under one weight scale and one input scale make a
// segment (of 32 columns where sums are kept in 16 bits). For each segment and output:
//   out = fma(float(exact sum), weight scale · input scale, out)
// and after a weight group's last segment out = fma(bias, input sum, out), in the order of the columns: that order is the whole
// definition of a result's bits.
#include "ops/cpu_units.h"
#include "ops/matmul/codes.h"

namespace lily::ops::LILY_ISA {

constexpr int kPanelRows = 2 * kLanes;
constexpr int kPanelCols = 512;                   // a multiple of every group
constexpr int kMostGroups = kPanelCols / 32;      // of weights in a panel
constexpr int kPanelBytes = kPanelRows * kPanelCols;
#if defined(__AVX512F__)
constexpr int kTileTokens = 6;  // 12 exact sums, 12 of floats, 2 weights, a broadcast: 27 of 32 registers
#elif defined(__AVX2__)
constexpr int kTileTokens = 3;  // of 16 registers
#else
constexpr int kTileTokens = 6;
#endif
static_assert(kFullTiles % kTileTokens == 0 && kFullTiles <= kBlockTokens);

// What a tile reads of the weights: a panel's codes, and scales and biases [group][kBlockRows].
struct Panel {
  const std::uint8_t* codes;
  const float *scales, *biases;
};
// … and of the input: byte k/2 of a row's even columns.
struct TileInput {
  const std::byte* even[kTileTokens];
  std::int64_t odd;     // from there to byte k/2 of its odd columns
  std::int64_t term;    // … to the second term
  std::int64_t scales;  // … to its scales from column k on
  std::int64_t sums;    // … to its sums of weight groups from column k on
};
// What to ask for while multiplying: a block's codes, scales and biases, each of them in one piece, in the order of memory, then
// rows of input; `rate` lines for every segment: evenly, since a core has few requests under way at a time and waits when they
// are all taken.
struct Ahead {
  const std::byte *line, *end;
  const std::byte *then[2], *then_end[2];
  int left;  // of `then`
  int rate;
  const InputRows* in;
  int row, rows;
  std::int64_t row_bytes;
};
LILY_SIMD bool next_piece(Ahead* a) {
  if (a->left > 0) {
    --a->left;
    a->line = a->then[a->left];
    a->end = a->then_end[a->left];
  } else if (a->row < a->rows) {
    a->line = quantized_row(*a->in, a->row++);
    a->end = a->line + a->row_bytes;
  } else {
    return false;
  }
  return true;
}
LILY_SIMD void ask(Ahead* a, int lines) {
  for (int i = 0; i < lines; ++i, a->line += 64) {
    if (a->line >= a->end && !next_piece(a)) return;
    __builtin_prefetch(a->line, 0, 2);
  }
}
static Ahead ahead_of(const NextRows& next, int steps, int unpacks) {
  if (next.n == 0) return {};
  const Matrix& w = *next.w;
  const std::int64_t bytes = next.n * w.row_bytes, side = next.n * w.scale_row_bytes, row_bytes = next.in ? next.in->layout.row_bytes() : 0;
  const std::byte *codes = w.data + next.r0 * w.row_bytes, *scales = w.scales + next.r0 * w.scale_row_bytes,
                  *biases = w.biases + next.r0 * w.scale_row_bytes;
  const std::int64_t lines = (bytes + 2 * side) / 64 + 3 + next.m * div_up(row_bytes, 64);
  return {scales, scales + side, {codes, biases}, {codes + bytes, biases + side}, 2, int((lines - unpacks + steps - 1) / steps),
          next.in, 0, next.m, row_bytes};
}

// How a panel's columns fall into segments.
struct Segments {
  int count, halves;         // halves: times 32 columns
  int group_ends;            // a weight group ends after every so many segments: a power of two
  int scale_shift;           // segment s has the input scale s >> scale_shift
};
LILY_SIMD Segments segments_of(std::int64_t group, int cols) {
  const int most = kDotSteps * 4, size = group < most ? int(group) : most;
  return {cols / size, size / 32, int(group) / size, size == 64 ? 0 : 1};
}

// Adds the exact sums of 32 columns: 2 vectors of weight rows × T input rows.
template <bool kWide, int T>
LILY_SIMD void tile_dots(const std::uint8_t* codes, const TileInput& x, std::int64_t at, Dot<kWide> (&dot)[T][2]) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const Bytes w0 = load_bytes(codes + i * 2 * kByteLanes), w1 = load_bytes(codes + i * 2 * kByteLanes + kByteLanes);
    const std::int64_t from = at + (i & 1) * x.odd + i / 2 * 4;
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      const Bytes b = broadcast4(x.even[t] + from);
      dot[t][0].step(w0, b);
      dot[t][1].step(w1, b);
    }
  }
}

// out[t·kBlockRows + lane] over a panel's columns; `first`: out begins at zero.
template <bool kWide, int kTerms, int T>
static void gemm_tile(const Panel& w, const TileInput& x, const Segments& s, bool first, Ahead* ahead, float* out) {
  constexpr std::int64_t kHalfBytes = 8 * 2 * kByteLanes;  // of codes of 32 columns
  F32 acc[T][2];
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
    acc[t][0] = first ? zero() : load(out + t * kBlockRows);
    acc[t][1] = first ? zero() : load(out + t * kBlockRows + kLanes);
  }
  const std::uint8_t* codes = w.codes;
  const float *scales = w.scales, *biases = w.biases;
  std::int64_t at = 0;
  for (int i = 0, group = 0; i < s.count; ++i) {
    Dot<kWide> dot[T][2];
#pragma GCC unroll 2
    for (int term = 0; term < kTerms; ++term) {
      if (term > 0)
#pragma GCC unroll 6
        for (int t = 0; t < T; ++t) dot[t][0].next_term(), dot[t][1].next_term();
      for (int h = 0; h < s.halves; ++h) {
        ask(ahead, ahead->rate);
        tile_dots<kWide, T>(codes + h * kHalfBytes, x, at + term * x.term + h * 16, dot);
      }
    }
    const F32 w0 = load(scales), w1 = load(scales + kLanes);
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      const F32 v = set1(*reinterpret_cast<const float*>(x.even[t] + (x.scales + 4 * (i >> s.scale_shift))));
      acc[t][0] = fma(to_float(dot[t][0].total()), w0 * v, acc[t][0]);
      acc[t][1] = fma(to_float(dot[t][1].total()), w1 * v, acc[t][1]);
    }
    codes += s.halves * kHalfBytes;
    at += s.halves * 16;
    if ((i + 1) & (s.group_ends - 1)) continue;
    const F32 b0 = load(biases), b1 = load(biases + kLanes);
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      const F32 v = set1(*reinterpret_cast<const float*>(x.even[t] + (x.sums + 4 * group)));
      acc[t][0] = fma(b0, v, acc[t][0]);
      acc[t][1] = fma(b1, v, acc[t][1]);
    }
    ++group, scales += kBlockRows, biases += kBlockRows;
  }
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
    store(out + t * kBlockRows, acc[t][0]);
    store(out + t * kBlockRows + kLanes, acc[t][1]);
  }
}

template <bool kWide, int kTerms>
LILY_SIMD void gemm_tile_any(int tokens, const Panel& w, const TileInput& x, const Segments& s, bool first, Ahead* ahead,
                             float* out) {
  switch (tokens) {
    case 1: gemm_tile<kWide, kTerms, 1>(w, x, s, first, ahead, out); break;
    case 2: gemm_tile<kWide, kTerms, 2>(w, x, s, first, ahead, out); break;
    case 3: gemm_tile<kWide, kTerms, 3>(w, x, s, first, ahead, out); break;
#if !defined(__AVX2__) || defined(__AVX512F__)
    case 4: gemm_tile<kWide, kTerms, 4>(w, x, s, first, ahead, out); break;
    case 5: gemm_tile<kWide, kTerms, 5>(w, x, s, first, ahead, out); break;
    default: gemm_tile<kWide, kTerms, 6>(w, x, s, first, ahead, out); break;
#endif
  }
}

// kLanes rows of bytes, `stride` apart, interleaved by dwords; `nibbles`: each dword makes one of even and one of odd columns.
// out: dword i of vector v at (i·step)·2·kByteLanes.
LILY_SIMD void interleave_nibbles(const std::byte* in, std::int64_t stride, int cols, Ahead* ahead, std::uint8_t* out) {
  for (int k = 0; k < cols; k += 32, in += 16) {
    ask(ahead, 1);
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
  for (int k = 0; k < cols; k += 32, even += 16, odd += 16) {
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
static void unpack_vector(const Matrix& w, std::int64_t r0, std::int64_t end, std::int64_t k, int cols, Ahead* ahead,
                          std::uint8_t* out) {
  const std::byte* data = w.data + k * w.bits / 8;
  alignas(64) std::uint8_t buffer[kLanes * kPanelCols];
  if (w.bits == 4) {
    if (r0 + kLanes <= end) {
      interleave_nibbles(data + r0 * w.row_bytes, w.row_bytes, cols, ahead, out);
      return;
    }
    for (int i = 0; i < kLanes; ++i) {
      const std::int64_t row = r0 + i < end ? r0 + i : end - 1;
      memcpy(buffer + i * (kPanelCols / 2), data + row * w.row_bytes, std::size_t(cols / 2));
    }
    interleave_nibbles(reinterpret_cast<const std::byte*>(buffer), kPanelCols / 2, cols, ahead, out);
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

LILY_SIMD int tiles_of(int m) { return (m + kTileTokens - 1) / kTileTokens; }

template <bool kWide, int kTerms>
static void gemm_panels(const std::uint8_t* codes, int panels, const float* scales, const float* biases,
                        const std::byte* const* rows, const InputRows& in, std::int64_t k, int cols, int group,
                        bool two, int m, Ahead* ahead, float* out) {
  const Segments segments = segments_of(group, cols);
  const int tiles = tiles_of(m);
  TileInput x;
  x.odd = in.layout.width / 2;
  x.term = in.layout.width;
  x.scales = in.layout.scale_offset() + k / kQuantGroup * 4 - k / 2;
  x.sums = in.layout.sum_offset(two ? 2 : 1, group) + k / group * 4 - k / 2;
  for (int p = 0; p < panels; ++p) {
    const Panel w = {codes + p * kPanelBytes, scales + p * kPanelRows, biases + p * kPanelRows};
    for (int i = 0, t0 = 0; i < tiles; ++i) {
      const int tokens = in.adaptive_tiles ? (m - t0 + tiles - i - 1) / (tiles - i) : kTileTokens;  // nearly equal heights
      for (int t = 0; t < tokens; ++t) x.even[t] = rows[t0 + t < m ? t0 + t : m - 1] + k / 2;
      gemm_tile_any<kWide, kTerms>(tokens, w, x, segments, k == 0, ahead,
                                   out + t0 * kBlockRows + p * kPanelRows);
      t0 += tokens;
    }
  }
}

void gemm_block(const Matrix& w, std::int64_t r0, int n, const InputRows& in, int m, const NextRows& next, float* out,
                Arena arena) {
  auto* codes = arena.take<std::uint8_t>(kBlockRows * kPanelCols);
  float* scales = arena.take<float>(kMostGroups * kBlockRows);
  float* biases = arena.take<float>(kMostGroups * kBlockRows);
  auto** rows = arena.take<const std::byte*>(kBlockTokens);
  for (int i = 0; i < m; ++i) rows[i] = quantized_row(in, i);
  const bool two = two_terms(in), wide = w.bits > 4;
  const std::int64_t end = r0 + n;
  const int panels = (n + kPanelRows - 1) / kPanelRows, group = int(w.group);
  Ahead ahead = ahead_of(next, tiles_of(m) * panels * int(w.cols / 32), 2 * panels * int(w.cols / 32));
  for (std::int64_t k = 0; k < w.cols; k += kPanelCols) {
    const int cols = int(w.cols - k < kPanelCols ? w.cols - k : std::int64_t(kPanelCols));
    for (int v = 0; v < 2 * panels; ++v) {
      const std::int64_t row = r0 + v * kLanes < end ? r0 + v * kLanes : end - 1;
      unpack_vector(w, row, end, k, cols, &ahead, codes + v / 2 * kPanelBytes + v % 2 * kByteLanes);
      unpack_scales(w.scales, w.scale_row_bytes, w.scale_type, row, end, k / group, cols / group, scales + v * kLanes);
      if (two)  // a sum counts in units of a 256th of the input's scale
        for (int g = 0; g < cols / group; ++g) {
          float* s = scales + g * kBlockRows + v * kLanes;
          store(s, load(s) * set1(1.0f / 256.0f));
        }
      unpack_scales(w.biases, w.scale_row_bytes, w.scale_type, row, end, k / group, cols / group, biases + v * kLanes);
    }
    const auto run = wide ? (two ? gemm_panels<true, 2> : gemm_panels<true, 1>)
                          : (two ? gemm_panels<false, 2> : gemm_panels<false, 1>);
    run(codes, panels, scales, biases, rows, in, k, cols, group, two, m, &ahead, out);
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
      gemv_prepare(part, m - i < kGemvRows ? m - i : kGemvRows, w, &input, &local);
      gemv_block(w, r0, n, input, next, out + i * kBlockRows, local);
    }
  }
}

}  // namespace lily::ops::LILY_ISA
