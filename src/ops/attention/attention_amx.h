// Prefill attention over a bf16 cache by the tile registers of AMX: an instruction multiplies 16 query heads with 16 keys (or their weights
// with 16 channels of V) over 32 values, 8192 products where vpdpwssd has 32.
//
// The cache's words lie as the instruction wants its second operand: 16 rows of 16 words of K are 32 channels of 16 keys, of V (after a copy
// that brings a tile's rows together) 32 keys of 16 channels. K and V are multiplied as they are. q and the weights are cut into two bf16 terms
// each, 16 significant bits together: x = high + low, high = x with its last 16 bits cleared. Sums are float32; the instruction
// adds products in a fixed order and takes subnormal numbers for zero.
//
// A query head of a row has a place in a tile; which neighbours it has there changes nothing in its sums, and a key that it does not see has
// the weight zero. Zero times a NaN would be one: a value of V that is not finite is zero in the copy, and its key's weights are
// NaN. A sum that is minus zero becomes plain zero, so that products with the weight zero leave no trace there either.
#pragma once

#include <string.h>

#include "ops/attention/attention_tile.h"
#include "ops/matmul/tile_registers.h"

#if defined(LILY_AMX)
namespace lily::ops::LILY_ISA::amx {

constexpr int kAmxKeys = 256;            // keys of a block: as kKeys
constexpr int kTile = 16;                // rows of a tile, and its words
constexpr int kStep = 2 * kTile;         // values that one instruction adds up
constexpr int kPairQueries = 2 * kTile;  // query heads that are multiplied together: two tiles
constexpr int kTileWords = kTile * kTile;
constexpr int kBlockSteps = kAmxKeys / kStep;
static_assert(kKvBlockTokens % kAmxKeys == 0 && kAmxKeys % kKeys == 0 && kKvGroup == kTile && kLanes == kTile);

LILY_SIMD TileShapes whole_tiles() {
  TileShapes t;
  for (auto& shape : t.tile) shape = {kTile, 64};
  return t;
}

/// Whether heads of this many channels are whole tiles.
LILY_SIMD bool takes_tiles(int dim) { return dim % kStep == 0; }

/// A worker's scratch. Places: the unit's query heads, in order, and what is missing to whole pairs of tiles.
struct AmxScratch {
  std::uint32_t* q;  // [tile][dim / kStep][2 terms][kTile queries][kTile words], times 1/sqrt(dim)
  float* o;          // [tile][dim / kTile][kTile queries][kTile channels]
  float *m, *l;      // [place]
  float* scores;         // [2 tiles][kAmxKeys / kTile][kTile queries][kTile keys]
  std::uint32_t* p;      // [2 tiles][kBlockSteps][2 terms][kTile queries][kTile words]
  std::uint32_t* v;      // [dim / kTile][kAmxKeys / 2][kTile]
  float* spoilt;         // [kAmxKeys]: NaN where V is not finite, else zero
};
LILY_SIMD AmxScratch amx_scratch(const CpuScratch& scratch, int dim, std::int64_t places) {
  AmxScratch x;
  x.scores = reinterpret_cast<float*>(scratch.data);
  x.p = reinterpret_cast<std::uint32_t*>(x.scores + kPairQueries * kAmxKeys);
  x.v = x.p + kPairQueries * kAmxKeys;
  x.spoilt = reinterpret_cast<float*>(x.v + kAmxKeys / 2 * dim);
  x.m = x.spoilt + kAmxKeys;
  x.l = x.m + places;
  x.o = x.l + places;
  x.q = reinterpret_cast<std::uint32_t*>(x.o + places * dim);
  return x;
}
/// Floats of what does not grow with the unit's rows, and of the places without a query in the last pair of tiles.
LILY_SIMD std::int64_t block_floats(int dim) {
  return 2 * kPairQueries * kAmxKeys + kAmxKeys / 2 * std::int64_t(dim) + kAmxKeys + kPairQueries * std::int64_t(2 * dim + 2);
}

/// 32 floats, x0's and then x1's, as 16 words of their first terms and 16 of their second.
LILY_SIMD void store_terms(F32 x0, F32 x1, std::uint32_t* first, std::uint32_t* second) {
  const __m512i odd = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7,
                                       5, 3, 1);
  const __m512i high = _mm512_set1_epi32(int(0xffff0000u)), i0 = _mm512_castps_si512(x0), i1 = _mm512_castps_si512(x1);
  store_bytes(first, _mm512_permutex2var_epi16(i0, odd, i1));
  const F32 rest0 = x0 - _mm512_castsi512_ps(_mm512_and_si512(i0, high)), rest1 = x1 - _mm512_castsi512_ps(_mm512_and_si512(i1, high));
  store_bytes(second, (Bytes)_mm512_cvtne2ps_pbh(rest1, rest0));
}

/// q of the unit's query heads; those beyond them are zero. of(i): query i's floats.
template <class F>
static void arrange_queries(F of, int queries, int dim, float scale, std::uint32_t* q) {
  const int steps = dim / kStep;
  for (int i = 0; i < round_up(queries, kPairQueries); ++i) {
    std::uint32_t* to = q + std::int64_t(i / kTile) * steps * 2 * kTileWords + i % kTile * kTile;
    for (int s = 0; s < steps; ++s, to += 2 * kTileWords) {
      F32 x[2] = {zero(), zero()};
      for (int j = 0; j < 2 && i < queries; ++j) x[j] = load(of(i) + s * kStep + j * kLanes) * set1(scale);
      store_terms(x[0], x[1], to, to + kTileWords);
    }
  }
}

/// V of the block's keys, tile by tile, zero beyond the last one up to a whole step; returns whether a key is spoilt.
LILY_SIMD bool arrange_values(const KeyBlock& b, std::uint32_t* v, float* spoilt) {
  const int keys = int(round_up(b.n, kStep));
  const __m512i low_part = _mm512_set1_epi32(0x7f80), high_part = _mm512_set1_epi32(0x7f800000);
  bool any = false;
  for (int key = 0; key < keys; key += 2) {
    const std::uint32_t* from = b.v + std::int64_t(key / 2) * b.dim;
    const __m512i keep = key + 1 < b.n ? _mm512_set1_epi32(-1) : key < b.n ? _mm512_set1_epi32(0xffff) : _mm512_setzero_si512();
    __mmask16 bad_low = 0, bad_high = 0;
    for (int c = 0; c < b.dim; c += kTile) {
      const __m512i x = key < b.n ? _mm512_and_si512(load_bytes(from + c), keep) : keep;
      bad_low |= _mm512_cmpeq_epi32_mask(_mm512_and_si512(x, low_part), low_part);
      bad_high |= _mm512_cmpeq_epi32_mask(_mm512_and_si512(x, high_part), high_part);
      store_bytes(v + (std::int64_t(c / kTile) * (kAmxKeys / 2) + key / 2) * kTile, x);
    }
    spoilt[key] = bad_low ? __builtin_nanf("") : 0;
    spoilt[key + 1] = bad_high ? __builtin_nanf("") : 0;
    if (!(bad_low | bad_high)) continue;
    any = true;
    const __m512i good = _mm512_set1_epi32(int((bad_low ? 0 : 0xffffu) | (bad_high ? 0 : 0xffff0000u)));
    for (int c = 0; c < b.dim; c += kTile) {
      std::uint32_t* at = v + (std::int64_t(c / kTile) * (kAmxKeys / 2) + key / 2) * kTile;
      store_bytes(at, _mm512_and_si512(load_bytes(at), good));
    }
  }
  return any;
}

// Registers (plain numbers: they become part of assembler text): sums of [tile of queries][tile of keys or channels]; queries or
// weights; keys or channels.
#define LILY_SUMS_00 0
#define LILY_SUMS_01 1
#define LILY_SUMS_10 2
#define LILY_SUMS_11 3
#define LILY_QUERIES_0 4
#define LILY_QUERIES_1 5
#define LILY_KEYS_0 6
#define LILY_KEYS_1 7

/// The sums of two tiles of queries and two of keys (or channels) over one step. a: the first tile's terms, the other's a_next words on.
LILY_SIMD void multiply_step(const std::uint32_t* a, std::int64_t a_next, const std::uint32_t* b0, const std::uint32_t* b1) {
  _tile_loadd(LILY_KEYS_0, b0, 64);
  _tile_loadd(LILY_KEYS_1, b1, 64);
  _tile_loadd(LILY_QUERIES_0, a, 64);
  _tile_dpbf16ps(LILY_SUMS_00, LILY_QUERIES_0, LILY_KEYS_0);
  _tile_dpbf16ps(LILY_SUMS_01, LILY_QUERIES_0, LILY_KEYS_1);
  _tile_loadd(LILY_QUERIES_1, a + a_next, 64);
  _tile_dpbf16ps(LILY_SUMS_10, LILY_QUERIES_1, LILY_KEYS_0);
  _tile_dpbf16ps(LILY_SUMS_11, LILY_QUERIES_1, LILY_KEYS_1);
  _tile_loadd(LILY_QUERIES_0, a + kTileWords, 64);
  _tile_dpbf16ps(LILY_SUMS_00, LILY_QUERIES_0, LILY_KEYS_0);
  _tile_dpbf16ps(LILY_SUMS_01, LILY_QUERIES_0, LILY_KEYS_1);
  _tile_loadd(LILY_QUERIES_1, a + a_next + kTileWords, 64);
  _tile_dpbf16ps(LILY_SUMS_10, LILY_QUERIES_1, LILY_KEYS_0);
  _tile_dpbf16ps(LILY_SUMS_11, LILY_QUERIES_1, LILY_KEYS_1);
}

/// K and V of the next block, of which some lines are asked for with each step: the memory has that long to bring them.
struct NextBlock {
  const char *k, *v;
  int lines;  // of each, a step
  LILY_SIMD_MEMBER void ask() {
    for (int i = 0; i < lines; ++i, k += 64, v += 64) {
      __builtin_prefetch(k, 0, 2);
      __builtin_prefetch(v, 0, 2);
    }
  }
};

/// Scores of two tiles of queries with the first `keys` keys of the block, in whole steps.
static void score_pair(const KeyBlock& b, const std::uint32_t* q, int keys, NextBlock& next, float* scores) {
  const int steps = b.dim / kStep;
  const std::int64_t group = std::int64_t(kKvGroup) * b.key_words;
  order_memory();
  for (int key = 0; key < keys; key += kStep) {
    const std::uint32_t* k = b.k + key / kKvGroup * group;
    _tile_zero(LILY_SUMS_00);
    _tile_zero(LILY_SUMS_01);
    _tile_zero(LILY_SUMS_10);
    _tile_zero(LILY_SUMS_11);
    for (int s = 0; s < steps; ++s) {
      next.ask();
      multiply_step(q + s * 2 * kTileWords, std::int64_t(steps) * 2 * kTileWords, k + s * kTileWords, k + group + s * kTileWords);
    }
    float* to = scores + key / kTile * kTileWords;
    _tile_stored(LILY_SUMS_00, to, 64);
    _tile_stored(LILY_SUMS_01, to + kTileWords, 64);
    _tile_stored(LILY_SUMS_10, to + kAmxKeys * kTile, 64);
    _tile_stored(LILY_SUMS_11, to + kAmxKeys * kTile + kTileWords, 64);
  }
  order_memory();
}

/// o of two tiles of queries += weights · V over the first `keys` keys, in whole steps.
static void add_values(const std::uint32_t* p, const std::uint32_t* v, int keys, int dim, float* o) {
  float* other = o + std::int64_t(dim) * kTile;
  order_memory();
  for (int c = 0; c < dim; c += 2 * kTile, o += 2 * kTileWords, other += 2 * kTileWords, v += kAmxKeys * kTile) {
    _tile_loadd(LILY_SUMS_00, o, 64);
    _tile_loadd(LILY_SUMS_01, o + kTileWords, 64);
    _tile_loadd(LILY_SUMS_10, other, 64);
    _tile_loadd(LILY_SUMS_11, other + kTileWords, 64);
    for (int s = 0; s * kStep < keys; ++s)
      multiply_step(p + s * 2 * kTileWords, std::int64_t(kBlockSteps) * 2 * kTileWords, v + s * kTileWords,
                    v + kAmxKeys / 2 * kTile + s * kTileWords);
    _tile_stored(LILY_SUMS_00, o, 64);
    _tile_stored(LILY_SUMS_01, o + kTileWords, 64);
    _tile_stored(LILY_SUMS_10, other, 64);
    _tile_stored(LILY_SUMS_11, other + kTileWords, 64);
  }
  order_memory();
}
#undef LILY_SUMS_00
#undef LILY_SUMS_01
#undef LILY_SUMS_10
#undef LILY_SUMS_11
#undef LILY_QUERIES_0
#undef LILY_QUERIES_1
#undef LILY_KEYS_0
#undef LILY_KEYS_1

/// The weights of a tile's queries and their running maxima and sums. seen[i]: how many of the block's keys query i sees (0 or less:
/// none), at most `keys`, a whole number of steps. keep[i]: what its earlier sums are to be multiplied with.
static void soften_tile(float* scores, int keys, const int* seen, const float* spoilt, float* m, float* l, float* keep, std::uint32_t* p) {
  alignas(64) float now[kTile], total[kTile];
  const int vectors = keys / kLanes;
  for (int i = 0; i < kTile; ++i) {
    F32 most = set1(-__builtin_inff());
    for (int j = 0; j < vectors; ++j) {
      float* at = scores + j * kTileWords + i * kTile;
      const int lanes = seen[i] - j * kLanes;
      F32 x = load(at);
      if (lanes < kLanes) {
        x = keep_n(x, lanes < 0 ? 0 : lanes, set1(-__builtin_inff()));
        store(at, x);
      }
      most = max(most, x);
    }
    now[i] = max_lane(most);
  }
  const F32 before = load(m), after = max(before, load(now));
  store(m, after);
  const F32 k = exp(before - after);  // one where no key is seen, NaN in a place without a query
  store(keep, k);
  for (int i = 0; i < kTile; ++i) {
    F32 sum_e = zero();
    const F32 top = set1(m[i]);
    for (int j = 0; j < vectors; j += 2) {
      F32 e[2];
      for (int n = 0; n < 2; ++n) {
        e[n] = exp(load(scores + (j + n) * kTileWords + i * kTile) - top);  // e^−infinity is plain zero
        sum_e = sum_e + e[n];
        if (!spoilt) continue;
        const int lanes = seen[i] - (j + n) * kLanes;
        e[n] = e[n] + keep_n(load(spoilt + (j + n) * kLanes), lanes < 0 ? 0 : lanes < kLanes ? lanes : kLanes, zero());
      }
      std::uint32_t* to = p + j * kTileWords + i * kTile;
      store_terms(e[0], e[1], to, to + kTileWords);
    }
    total[i] = sum(sum_e);
  }
  store(l, fma(load(l), k, load(total)));
}

/// o of a tile's queries times keep.
static void scale_sums(const float* keep, int dim, float* o) {
  if (_mm512_cmpeq_ps_mask(load(keep), set1(1.0f)) == 0xffff) return;
  for (int c = 0; c < dim; c += kTile)
    for (int i = 0; i < kTile; ++i, o += kTile) store(o, fma(load(o), set1(keep[i]), zero()));
}

}  // namespace lily::ops::LILY_ISA::amx
#endif
