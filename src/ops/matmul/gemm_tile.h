// Tiles of vector registers: a panel with up to kTileTokens rows of input, four bytes of each broadcast.
#pragma once

#include "ops/matmul/gemm_panel.h"

namespace lily::ops::LILY_ISA {

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
// A vector of the columns 8·(i / 2) + i % 2 + 0, 2, 4, 6 of a panel, i < 8.
template <bool kPacked>
LILY_SIMD Bytes codes_of(const std::uint8_t* codes, int i) {
  if constexpr (!kPacked) return load_bytes(codes + i * 2 * kByteLanes);
  const Bytes both = load_bytes(codes + i / 2 * 2 * kByteLanes);
  return i & 1 ? high_nibbles(both) : low_nibbles(both);
}
// Adds the exact sums of 32 columns: 2 vectors of weight rows × T input rows.
template <bool kWide, bool kPacked, int T>
LILY_SIMD void tile_dots(const std::uint8_t* codes, const TileInput& x, std::int64_t at, Dot<kWide> (&dot)[T][2]) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const Bytes w0 = codes_of<kPacked>(codes, i), w1 = codes_of<kPacked>(codes + kByteLanes, i);
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
template <bool kWide, bool kPacked, int kTerms, int T>
static void gemm_tile(const Panel& w, const TileInput& x, const Segments& s, bool first, Ahead* ahead, float* out) {
  constexpr std::int64_t kHalfBytes = (kPacked ? 4 : 8) * 2 * kByteLanes;  // of codes of 32 columns
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
        tile_dots<kWide, kPacked, T>(codes + h * kHalfBytes, x, at + term * x.term + h * 16, dot);
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

template <bool kWide, bool kPacked, int kTerms>
LILY_SIMD void gemm_tile_any(int tokens, const Panel& w, const TileInput& x, const Segments& s, bool first, Ahead* ahead,
                             float* out) {
  switch (tokens) {
    case 1: gemm_tile<kWide, kPacked, kTerms, 1>(w, x, s, first, ahead, out); break;
    case 2: gemm_tile<kWide, kPacked, kTerms, 2>(w, x, s, first, ahead, out); break;
    case 3: gemm_tile<kWide, kPacked, kTerms, 3>(w, x, s, first, ahead, out); break;
#if !defined(__AVX2__) || defined(__AVX512F__)
    case 4: gemm_tile<kWide, kPacked, kTerms, 4>(w, x, s, first, ahead, out); break;
    case 5: gemm_tile<kWide, kPacked, kTerms, 5>(w, x, s, first, ahead, out); break;
    default: gemm_tile<kWide, kPacked, kTerms, 6>(w, x, s, first, ahead, out); break;
#endif
  }
}

LILY_SIMD int tiles_of(int m) { return (m + kTileTokens - 1) / kTileTokens; }

template <bool kWide, bool kPacked, int kTerms>
static void gemm_panels(const std::uint8_t* codes, int panels, const float* scales, const float* biases,
                        const std::byte* const* rows, const InputRows& in, std::int64_t k, int cols, int group, int m, Ahead* ahead,
                        float* out) {
  const Segments segments = segments_of(group, cols);
  const int tiles = tiles_of(m);
  TileInput x;
  x.odd = in.layout.width / 2;
  x.term = in.layout.width;
  x.scales = in.layout.scale_offset() + k / kQuantGroup * 4 - k / 2;
  x.sums = in.layout.sum_offset(two_terms(in) ? 2 : 1, group) + k / group * 4 - k / 2;
  for (int i = 0, t0 = 0; i < tiles; ++i) {
    const int tokens = in.adaptive_tiles ? (m - t0 + tiles - i - 1) / (tiles - i) : kTileTokens;  // nearly equal heights
    for (int t = 0; t < tokens; ++t) x.even[t] = rows[t0 + t < m ? t0 + t : m - 1] + k / 2;
    for (int p = 0; p < panels; ++p) {
      const Panel w = {codes + p * kPanelBytes, scales + p * kPanelRows, biases + p * kPanelRows};
      gemm_tile_any<kWide, kPacked, kTerms>(tokens, w, x, segments, k == 0, ahead, out + t0 * kBlockRows + p * kPanelRows);
    }
    t0 += tokens;
  }
}

}  // namespace lily::ops::LILY_ISA
