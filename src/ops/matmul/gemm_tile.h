// Tiles of vector registers: a panel with up to kTileTokens rows of input, four bytes of each broadcast.
#pragma once

#include "ops/matmul/gemm_panel.h"

namespace lily::ops::LILY_ISA {

#if defined(__AVX512F__)
constexpr int kTileTokens = 6;  // 12 exact sums, 12 of floats, 4 weights, 2 broadcasts: 30 of 32 registers
#elif defined(__AVX2__)
constexpr int kTileTokens = 3;  // of 16 registers
#else
constexpr int kTileTokens = 6;
#endif
static_assert(kFullTiles % kTileTokens == 0 && kFullTiles <= kBlockTokens);

// What a tile reads of the input: byte k/2 of a row's even columns.
struct TileInput {
  const std::byte* even[kTileTokens];
  std::int64_t odd;     // from there to byte k/2 of its odd columns
  std::int64_t term;    // … to the second term
  std::int64_t scales;  // … to its scales from column k on
  std::int64_t sums;    // … to its sums of weight groups from column k on
  std::int64_t pairs;   // … to its pair sums from column k on
};
// A vector of the columns 8·(i / 2) + i % 2 + 0, 2, 4, 6 of a panel, i < 8.
template <Form kForm>
LILY_SIMD Bytes codes_of(const std::uint8_t* codes, int i) {
  if constexpr (kForm != Form::packed) return load_bytes(codes + i * 2 * kByteLanes);
  const Bytes both = load_bytes(codes + i / 2 * 2 * kByteLanes);
  return i & 1 ? high_nibbles(both) : low_nibbles(both);
}
template <Form kForm>
using TileDot = Dot<kForm == Form::wide>;
// Adds the exact sums of 32 columns: 2 vectors of weight rows × T input rows.
template <Form kForm, int T>
LILY_SIMD void tile_dots(const std::uint8_t* codes, const TileInput& x, std::int64_t at, TileDot<kForm> (&dot)[T][2]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i, at += 4) {
    const Bytes e0 = codes_of<kForm>(codes, 2 * i), e1 = codes_of<kForm>(codes + kByteLanes, 2 * i);
    const Bytes o0 = codes_of<kForm>(codes, 2 * i + 1), o1 = codes_of<kForm>(codes + kByteLanes, 2 * i + 1);
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      const Bytes even = broadcast4(x.even[t] + at), odd = broadcast4(x.even[t] + at + x.odd);
      if constexpr (kForm == Form::paired) {
        dot[t][0].step(add_bytes(o0, even), add_bytes(e0, odd));
        dot[t][1].step(add_bytes(o1, even), add_bytes(e1, odd));
      } else {
        dot[t][0].step(e0, even), dot[t][1].step(e1, even);
        dot[t][0].step(o0, odd), dot[t][1].step(o1, odd);
      }
    }
  }
}

// out[t·kBlockRows + lane] over a panel's columns; `first`: out begins at zero.
template <Form kForm, int kTerms, int T>
static void gemm_tile(const Panel& w, const TileInput& x, const Segments& s, bool first, Ahead* ahead, float* out) {
  constexpr std::int64_t kHalfBytes = (kForm == Form::packed ? 4 : 8) * 2 * kByteLanes;  // of codes of 32 columns
  F32 acc[T][2];
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
    acc[t][0] = first ? zero() : load(out + t * kBlockRows);
    acc[t][1] = first ? zero() : load(out + t * kBlockRows + kLanes);
  }
  const std::uint8_t* codes = w.codes;
  const float *scales = w.scales, *biases = w.biases;
  std::int64_t at = 0;
  const int halves = kForm == Form::paired ? 2 : s.halves;  // its segments are of 64 columns
  for (int i = 0, group = 0; i < s.count; ++i) {
    ask(ahead, ahead->rate * halves);
    TileDot<kForm> dot[T][2];
    if constexpr (kForm == Form::paired) {
      const I32 p0 = as_int(load_bytes(w.pairs + i * kBlockRows)), p1 = as_int(load_bytes(w.pairs + i * kBlockRows + kLanes));
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        const I32 p = as_int(broadcast4(x.even[t] + (x.pairs + 4 * i)));
        dot[t][0].a = add(p0, p), dot[t][1].a = add(p1, p);
      }
    }
#pragma GCC unroll 2
    for (int term = 0; term < kTerms; ++term) {
      if (term > 0)
#pragma GCC unroll 6
        for (int t = 0; t < T; ++t) dot[t][0].next_term(), dot[t][1].next_term();
#pragma GCC unroll 2
      for (int h = 0; h < halves; ++h) {
        tile_dots<kForm, T>(codes + h * kHalfBytes, x, at + term * x.term + h * 16, dot);
      }
    }
    const F32 w0 = load(scales), w1 = load(scales + kLanes);
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      const F32 v = set1(*reinterpret_cast<const float*>(x.even[t] + (x.scales + 4 * (i >> s.scale_shift))));
      acc[t][0] = fma(to_float(dot[t][0].total()), w0 * v, acc[t][0]);
      acc[t][1] = fma(to_float(dot[t][1].total()), w1 * v, acc[t][1]);
    }
    codes += halves * kHalfBytes;
    at += halves * 16;
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

template <Form kForm, int kTerms>
LILY_SIMD void gemm_tile_any(int tokens, const Panel& w, const TileInput& x, const Segments& s, bool first, Ahead* ahead,
                             float* out) {
  switch (tokens) {
    case 1: gemm_tile<kForm, kTerms, 1>(w, x, s, first, ahead, out); break;
    case 2: gemm_tile<kForm, kTerms, 2>(w, x, s, first, ahead, out); break;
    case 3: gemm_tile<kForm, kTerms, 3>(w, x, s, first, ahead, out); break;
#if !defined(__AVX2__) || defined(__AVX512F__)
    case 4: gemm_tile<kForm, kTerms, 4>(w, x, s, first, ahead, out); break;
    case 5: gemm_tile<kForm, kTerms, 5>(w, x, s, first, ahead, out); break;
    default: gemm_tile<kForm, kTerms, 6>(w, x, s, first, ahead, out); break;
#endif
  }
}

LILY_SIMD int tiles_of(int m) { return (m + kTileTokens - 1) / kTileTokens; }

template <Form kForm, int kTerms>
static void gemm_panels(const Panel& w, int panels, const std::byte* const* rows, const InputRows& in, std::int64_t k, int cols,
                        int group, int m, Ahead* ahead, float* out) {
  const Segments segments = segments_of(group, cols);
  const int tiles = tiles_of(m);
  TileInput x;
  x.odd = in.layout.width / 2;
  x.term = in.layout.width;
  x.scales = in.layout.scale_offset() + k / kQuantGroup * 4 - k / 2;
  x.pairs = in.layout.pair_offset() + k / kQuantGroup * 4 - k / 2;
  x.sums = in.layout.sum_offset(two_terms(in) ? 2 : 1, group) + k / group * 4 - k / 2;
  for (int i = 0, t0 = 0; i < tiles; ++i) {
    // nearly equal heights
    const int tokens = in.techniques.adaptive_tiles ? (m - t0 + tiles - i - 1) / (tiles - i) : kTileTokens;
    for (int t = 0; t < tokens; ++t) x.even[t] = rows[t0 + t < m ? t0 + t : m - 1] + k / 2;
    for (int p = 0; p < panels; ++p) {
      gemm_tile_any<kForm, kTerms>(tokens, panel_at(w, p), x, segments, k == 0, ahead, out + t0 * kBlockRows + p * kPanelRows);
    }
    t0 += tokens;
  }
}

}  // namespace lily::ops::LILY_ISA
