// Tiles of AMX: one instruction multiplies up to 16 rows of input with 16 weight rows over a segment's columns.
//
// A vector of a panel, 16 weight rows interleaved by dwords, is an operand as it lies. The rows of input are packed to the same
// order, 64 bytes for 64 columns, once for all panels of a block. A segment's sums, exact in 32 bits, go through memory into the
// same floating-point steps as those of gemm_tile.h: a result has the same bits.
#pragma once

#include "ops/matmul/gemm_panel.h"
#include "ops/matmul/tile_registers.h"

namespace lily::ops::LILY_ISA::amx {

constexpr int kTileTokens = 16;
constexpr int kCols = panel_cols(Form::amx);
static_assert(kFullTiles % kTileTokens == 0 && kFullTiles <= kBlockTokens && kLanes == 16);

// Which tile register holds what.
#define LILY_SUMS 0
#define LILY_INPUT 1
#define LILY_CODES 2

LILY_SIMD int tiles_of(int m) { return (m + kTileTokens - 1) / kTileTokens; }

// All tiles of a block have one height, since to set it takes as long as a tile.
LILY_SIMD int tile_height(const InputRows& in, int m) { return in.techniques.adaptive_tiles ? (m + tiles_of(m) - 1) / tiles_of(m) : kTileTokens; }

// Of the registers while a block is multiplied.
LILY_SIMD TileShapes tile_shapes(int height, const Segments& s) {
  TileShapes t;
  t.tile[LILY_SUMS] = {height, 64};
  t.tile[LILY_INPUT] = {height, s.halves * 32};
  t.tile[LILY_CODES] = {s.halves * 8, 64};
  return t;
}

// Up to kTileTokens rows of input over a panel's columns.
template <int kTerms>
struct PackedInput {
  std::int8_t values[kTerms][kTileTokens][kCols];  // dwords of even and of odd columns in turn
  float scales[kCols / kQuantGroup][kTileTokens];
  float sums[kCols / 32][kTileTokens];  // of weight groups
};

template <int kTerms>
static void pack_input(const std::byte* const* rows, int tokens, const InputRows& in, std::int64_t k, int cols, int group,
                       PackedInput<kTerms>* out) {
  const std::int64_t odd = in.layout.width / 2, term = in.layout.width;
  const std::int64_t scales = in.layout.scale_offset() + k / kQuantGroup * 4;
  const std::int64_t sums = in.layout.sum_offset(two_terms(in) ? 2 : 1, group) + k / group * 4;
  const __m512i turn = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  for (int t = 0; t < tokens; ++t) {
    for (int i = 0; i < kTerms; ++i) {
      const std::byte* even = rows[t] + k / 2 + i * term;
      for (int c = 0; c < cols; c += 64, even += 32) {
        const __m256i e = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(even));
        const __m256i o = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(even + odd));
        store_bytes(&out->values[i][t][c],
                    _mm512_permutex2var_epi32(_mm512_castsi256_si512(e), turn, _mm512_castsi256_si512(o)));
      }
    }
    for (int g = 0; g < cols / kQuantGroup; ++g) memcpy(&out->scales[g][t], rows[t] + scales + 4 * g, 4);
    for (int g = 0; g < cols / group; ++g) memcpy(&out->sums[g][t], rows[t] + sums + 4 * g, 4);
  }
}

template <int kTerms>
struct TileSums {
  alignas(64) std::int32_t at[kTerms][kTileTokens * kLanes];
};

// The exact sums of the segment whose columns begin at `col` of the panel, codes at `codes`.
template <int kTerms>
LILY_SIMD void tile_dots(const PackedInput<kTerms>& x, int col, const std::uint8_t* codes, TileSums<kTerms>* sums) {
  order_memory();
  _tile_loadd(LILY_CODES, codes, 2 * kByteLanes);
  for (int i = 0; i < kTerms; ++i) {
    _tile_zero(LILY_SUMS);
    _tile_loadd(LILY_INPUT, &x.values[i][0][col], kCols);
    _tile_dpbsud(LILY_SUMS, LILY_INPUT, LILY_CODES);
    _tile_stored(LILY_SUMS, sums->at[i], 64);
  }
}

// A segment's sums, and those of the next one, which is multiplied meanwhile.
template <int kTerms>
struct Flow {
  TileSums<kTerms> sums[2];
  int now = 0;
};

// out[t·kBlockRows + lane], t < T, over a panel's columns; `first`: out begins at zero. codes, scales, biases: one vector's; its
// first segment is in `flow`, and that of `next` will be (null: none).
template <int kTerms, int T>
static void gemm_tile(const PackedInput<kTerms>& x, const std::uint8_t* codes, const std::uint8_t* next, const float* scales,
                      const float* biases, const Segments& s, bool first, Ahead* ahead, Flow<kTerms>* flow, float* out) {
  F32 acc[T];
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) acc[t] = first ? zero() : load(out + t * kBlockRows);
  const int cols = s.halves * 32, bytes = s.halves * 8 * 2 * kByteLanes;
  for (int i = 0, group = 0; i < s.count; ++i) {
    const TileSums<kTerms>& sums = flow->sums[flow->now];
    flow->now ^= 1;
    const bool last = i + 1 == s.count;
    if (!last || next) tile_dots(x, last ? 0 : (i + 1) * cols, last ? next : codes + (i + 1) * bytes, &flow->sums[flow->now]);
    ask(ahead, ahead->rate);
    const F32 w = load(scales);
    const float* v = x.scales[i >> s.scale_shift];
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      Bytes dot = load_bytes(sums.at[0] + t * kLanes);
      if constexpr (kTerms == 2) dot = add(times256(dot), load_bytes(sums.at[1] + t * kLanes));
      acc[t] = fma(to_float(dot), w * set1(v[t]), acc[t]);
    }
    if ((i + 1) & (s.group_ends - 1)) continue;
    const F32 b = load(biases);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) acc[t] = fma(b, set1(x.sums[group][t]), acc[t]);
    ++group, scales += kBlockRows, biases += kBlockRows;
  }
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) store(out + t * kBlockRows, acc[t]);
}

template <int kTerms>  // codes of any width fit
static void gemm_panels(const Panel& w, int panels, const std::byte* const* rows, const InputRows& in, std::int64_t k, int cols,
                        int group, int m, Ahead* ahead, float* out) {
  const Segments segments = segments_of(group, cols);
  const int height = tile_height(in, m);
  alignas(64) PackedInput<kTerms> x;
  Flow<kTerms> flow;
  for (int t0 = 0; t0 < m; t0 += height) {
    const std::byte* row[kTileTokens];
    for (int t = 0; t < height; ++t) row[t] = rows[t0 + t < m ? t0 + t : m - 1];
    pack_input<kTerms>(row, height, in, k, cols, group, &x);
    tile_dots(x, 0, w.codes, &flow.sums[flow.now]);
    for (int v = 0; v < 2 * panels; ++v) {
      const auto codes_of = [&](int i) { return w.codes + i / 2 * kPanelBytes + i % 2 * kByteLanes; };
      const auto run = [&](auto tile) __attribute__((always_inline)) {
        tile(x, codes_of(v), v + 1 < 2 * panels ? codes_of(v + 1) : nullptr, w.scales + v * kLanes, w.biases + v * kLanes, segments,
             k == 0, ahead, &flow, out + t0 * kBlockRows + v * kLanes);
      };
      switch (height) {
#define LILY_TILE(T) case T: run(gemm_tile<kTerms, T>); break;
        LILY_TILE(1) LILY_TILE(2) LILY_TILE(3) LILY_TILE(4) LILY_TILE(5) LILY_TILE(6) LILY_TILE(7) LILY_TILE(8)
        LILY_TILE(9) LILY_TILE(10) LILY_TILE(11) LILY_TILE(12) LILY_TILE(13) LILY_TILE(14) LILY_TILE(15) LILY_TILE(16)
#undef LILY_TILE
      }
    }
  }
}

#undef LILY_SUMS
#undef LILY_INPUT
#undef LILY_CODES

}  // namespace lily::ops::LILY_ISA::amx
