// What the forms of CPU attention share: the cache in words, and attention of some query heads to one block of keys in float32.
// Same rules as ops/simd.h.
#pragma once

#include "ops/cpu_units.h"
#include "ops/matmul/dot.h"

namespace lily::ops::LILY_ISA {

constexpr int kKeys = 64;          // keys of a block: between two looks at the maximum; aligned to absolute positions
constexpr int kPair = 2 * kLanes;  // keys (or channels) of a product's inner tile
constexpr int kTileHeads = kLanes == 8 ? 4 : 8;  // query heads that share a pass over a block: as many as the registers hold
static_assert(kKvBlockTokens % kKeys == 0 && kKeys % kPair == 0 && kKeys % kKvGroup == 0);

/// A number of heads that the compiler knows.
template <int N>
struct Width {
  static constexpr int value = N;
};

/// A vector of the cache's words as kValues vectors of floats: see StateLayout.
struct KvBf16 {
  static constexpr int kValues = 2;
  LILY_SIMD void unpack(Bytes words, F32* x) {
    x[0] = low_bf16(words);
    x[1] = high_bf16(words);
  }
};
struct KvF32 {
  static constexpr int kValues = 1;
  LILY_SIMD void unpack(Bytes words, F32* x) { *x = (F32)words; }
};

/// `n` words, the rest of the vector zero.
LILY_SIMD Bytes load_words(const std::uint32_t* p, std::int64_t n) {
  return n == kLanes ? load_bytes(p) : (Bytes)load_n(reinterpret_cast<const float*>(p), int(n));
}

/// A block of keys of one KV head in the cache, or what is left of it for a row.
struct KeyBlock {
  const std::uint32_t *k, *v;  // words of K ([kKeys / kKvGroup][key_words][kKvGroup]) and V ([kKeys / values][dim])
  int n, dim, key_words;       // n: keys that the row sees
};
template <class Kv>
LILY_SIMD KeyBlock key_block(const AttentionArgs& a, const SequenceState& state, int head, std::int64_t position, int n) {
  const std::byte* block = state.block_data.data()[position / kKvBlockTokens];
  const std::int64_t slot = position % kKvBlockTokens;
  const int key_words = (a.head_dim + Kv::kValues - 1) / Kv::kValues;
  return {reinterpret_cast<const std::uint32_t*>(block + state.layout.kv_offset(a.attention_layer, false, head)) + slot * key_words,
          reinterpret_cast<const std::uint32_t*>(block + state.layout.kv_offset(a.attention_layer, true, head)) +
              slot / Kv::kValues * a.head_dim,
          n, a.head_dim, key_words};
}

/// Words of K of the keys [key, key + kLanes) of a block: kKvGroup words on, the same keys' next channels.
LILY_SIMD const std::uint32_t* key_lanes(const KeyBlock& b, int key) {
  return b.k + std::int64_t(key) / kKvGroup * kKvGroup * b.key_words + key % kKvGroup;
}

/// Floats of one query head as arrange_q leaves it.
template <class Kv>
LILY_SIMD std::int64_t arranged_dim(int dim) {
  return div_up(dim, Kv::kValues) * Kv::kValues;
}
/// q of Q heads as [channel][Q].
template <class Kv, int Q>
LILY_SIMD void arrange_q(const float* q, int dim, float* out) {
  for (int c = 0; c < dim; ++c) {
    for (int h = 0; h < Q; ++h) out[std::int64_t(c) * Q + h] = q[std::int64_t(h) * dim + c];
  }
  for (std::int64_t i = std::int64_t(dim) * Q; i < arranged_dim<Kv>(dim) * Q; ++i) out[i] = 0;
}

/// Memory that is read soon, asked for (into the second cache) while computing: as much at a time as an inner step reads.
struct Ahead {
  const char* at;
  LILY_SIMD_MEMBER void ask() {
    for (int i = 0; i < kPair * 4; i += 64) __builtin_prefetch(at + i, 0, 1);
    at += kPair * 4;
  }
};

/// scores[h][key … key + kPair) of Q heads.
template <class Kv, int Q, bool Asks>
LILY_SIMD void score_tile(KeyBlock b, const float* q, int key, float* scores, Ahead& ahead) {
  F32 c[Q][2];
  for (int h = 0; h < Q; ++h) c[h][0] = c[h][1] = zero();
  const std::uint32_t *k0 = key_lanes(b, key), *k1 = key_lanes(b, key + kLanes);
  for (int w = 0; w < b.key_words; ++w, k0 += kKvGroup, k1 += kKvGroup) {
    F32 x[2][Kv::kValues];
    Kv::unpack(load_bytes(k0), x[0]);
    Kv::unpack(load_bytes(k1), x[1]);
    if (Asks) ahead.ask();
    for (int i = 0; i < Kv::kValues; ++i, q += Q) {
      for (int h = 0; h < Q; ++h) {
        const F32 y = set1(q[h]);
        c[h][0] = fma(y, x[0][i], c[h][0]);
        c[h][1] = fma(y, x[1][i], c[h][1]);
      }
    }
  }
  for (int h = 0; h < Q; ++h) {
    store(scores + h * kKeys + key, c[h][0]);
    store(scores + h * kKeys + key + kLanes, c[h][1]);
  }
}

/// p[h][0 … n) from scores to exponentials, zero up to the next whole pair; keep[h]: what earlier keys' sums are multiplied with.
template <int Q>
LILY_SIMD void softmax_step(float* p, int n, float scale, float* m, float* l, float* keep) {
  float now[Q];
  const int vectors = (n + kPair - 1) / kPair * 2;
  for (int i = 0; i < Q; ++i) {
    F32 most = set1(-__builtin_inff());
    for (int j = 0; j < vectors; ++j) {
      F32 s = load(p + i * kKeys + j * kLanes) * set1(scale);
      const int lanes = n - j * kLanes;
      if (lanes < kLanes) s = keep_n(s, lanes < 0 ? 0 : lanes, set1(-__builtin_inff()));
      store(p + i * kKeys + j * kLanes, s);
      most = max(most, s);
    }
    now[i] = max_lane(most);
  }
  for (int i = 0; i < Q; i += kLanes) {
    const int lanes = Q - i < kLanes ? Q - i : kLanes;
    const F32 before = load_n(m + i, lanes), after = max(before, load_n(now + i, lanes));
    store_n(m + i, after, lanes);
    store_n(keep + i, exp(before - after), lanes);
  }
  for (int i = 0; i < Q; ++i) {
    F32 total = zero();
    for (int j = 0; j < vectors; ++j) {
      const F32 e = exp(load(p + i * kKeys + j * kLanes) - set1(m[i]));
      store(p + i * kKeys + j * kLanes, e);
      total = total + e;
    }
    l[i] = l[i] * keep[i] + sum(total);
  }
}

/// o[h][c … c + lanes) ← keep[h]·o + Σ_key p[h][key]·V, keys in order; o's heads lie o_stride apart.
template <class Kv, int Q, bool Whole, bool Asks>
LILY_SIMD void value_tile(KeyBlock b, const float* p, const float* keep, int c, float* o, std::int64_t o_stride, Ahead& ahead) {
  const std::int64_t n0 = Whole || b.dim - c > kLanes ? kLanes : b.dim - c;
  const std::int64_t n1 = Whole ? kLanes : b.dim - c - n0;
  F32 sum[Q][2];
  for (int h = 0; h < Q; ++h) {
    sum[h][0] = load(o + h * o_stride + c) * set1(keep[h]);
    sum[h][1] = load(o + h * o_stride + c + kLanes) * set1(keep[h]);
  }
  const std::uint32_t* v = b.v + c;
  for (int key = 0; key < b.n; v += b.dim) {
    F32 x[2][Kv::kValues];
    Kv::unpack(load_words(v, n0), x[0]);
    Kv::unpack(load_words(v + kLanes, n1), x[1]);
    if (Asks) ahead.ask();
    for (int i = 0; i < Kv::kValues && (i == 0 || key < b.n); ++i, ++key) {
      for (int h = 0; h < Q; ++h) {
        const F32 y = set1(p[h * kKeys + key]);
        sum[h][0] = fma(y, x[0][i], sum[h][0]);
        sum[h][1] = fma(y, x[1][i], sum[h][1]);
      }
    }
  }
  for (int h = 0; h < Q; ++h) {
    store(o + h * o_stride + c, sum[h][0]);
    store(o + h * o_stride + c + kLanes, sum[h][1]);
  }
}

/// What query heads have of the keys so far: maxima, sums of exponentials, weighted values (rows o_stride apart).
struct HeadSums {
  float *m, *l, *o;
  std::int64_t o_stride;  // whole pairs of vectors
};

/// One more block of keys for Q heads. q: as arrange_q leaves it; p: [Q][kKeys] of scratch. Asks: for the block's V while K is
/// read, and for next_k while V is read.
template <class Kv, int Q, bool Asks>
static void attend_block(KeyBlock b, const std::uint32_t* next_k, const float* q, float scale, float* p, HeadSums s) {
  Ahead v{reinterpret_cast<const char*>(b.v)}, k{reinterpret_cast<const char*>(next_k)};
  for (int key = 0; key < b.n; key += kPair) score_tile<Kv, Q, Asks>(b, q, key, p, v);
  float keep[Q];
  softmax_step<Q>(p, b.n, scale, s.m, s.l, keep);
  int c = 0;
  for (; c + kPair <= b.dim; c += kPair) value_tile<Kv, Q, true, Asks>(b, p, keep, c, s.o, s.o_stride, k);
  if (c < b.dim) value_tile<Kv, Q, false, Asks>(b, p, keep, c, s.o, s.o_stride, k);
}

/// f(width, first head) for `heads` query heads cut into tiles; width is a Width.
template <class F>
LILY_SIMD void for_head_tiles(int heads, F f) {
  int h = 0;
  for (; h + kTileHeads <= heads; h += kTileHeads) f(Width<kTileHeads>(), h);
  for (; h + 4 <= heads; h += 4) f(Width<4>(), h);
  for (; h < heads; ++h) f(Width<1>(), h);
}

LILY_SIMD void clear_sums(HeadSums s, std::int64_t heads) {
  for (std::int64_t i = 0; i < heads; ++i) {
    s.m[i] = -__builtin_inff();
    s.l[i] = 0;
  }
  memset(s.o, 0, std::size_t(heads * s.o_stride) * sizeof(float));
}

}  // namespace lily::ops::LILY_ISA
