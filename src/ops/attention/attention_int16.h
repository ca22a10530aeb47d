// Prefill attention over a bf16 cache as 16-bit integers: one dot-product instruction then does twice the work of a float32 fma.
// Same rules as ops/simd.h.
//
// Each vector that takes part has a scale of its own, so that all sums are exact in 32 bits whatever the values are:
//   K of a key: Euclidean norm below 2^15, values below 2^14, its scale a power of two: the larger of its values, with 8 significant
//     bits, stay exact.
//   q: Euclidean norm up to 65000, so that no sum of q·k passes 65000·2^15 < 2^31 (Cauchy-Schwarz); values up to 16383.
//   V of a key: largest value below 2^12, its scale a power of two.
//   the weights p of a block's keys (times V's scales): up to 28671 each and 524,000 together, 524,000·2^12 < 2^31.
// A vector with a NaN or an infinity has NaN for its scale, and so has all that it takes part in.
//
// Paired, two words are multiplied at once, as gemm's paired columns are (ops/matmul/gemm_panel.h): with x, x' of one operand and y, y'
// of the other, x·y + x'·y' = (x + y')·(x' + y) − x·x' − y·y', where y·y' is summed once a block of keys and x·x' once a row. Hence the
// bounds on values: the sums of two must be 16-bit integers. Sums in 32 bits may wrap on the way; the result does not.
#pragma once

#include <string.h>

#include "ops/attention/attention_tile.h"

#if defined(__x86_64__)
namespace lily::ops::LILY_ISA {

constexpr int kKeys16 = 128;  // keys of a block: as kKeys
static_assert(kKvBlockTokens % kKeys16 == 0 && kKeys16 % kKeys == 0);

constexpr float kQueryNorm = 65000, kQueryMost = 16383, kKeyMost = 0x1p13f, kValueMost = 0x1p11f;  // K, V: from these up to their doubles
constexpr float kWeightMost = 28671, kWeightSum = 524000;

/// 16-bit integers that a vector was multiplied into: value = integer · back, integer = round(value · into).
struct Scale {
  float into, back;
};
/// into: target / size, where target is a power of two, rounded down to a power of two: target ≤ size·into < 2·target.
LILY_SIMD Scale power_scale(float size, float target) {
  if (!(size < __builtin_inff())) return {0, __builtin_nanf("")};
  if (size < 0x1p-60f) return {0, 0};  // nothing beside any other
  std::uint32_t bits;
  memcpy(&bits, &size, 4);
  bits &= 0x7f800000u;
  float power;
  memcpy(&power, &bits, 4);
  return {target / power, power / target};
}

// In assembler: around the intrinsic GCC 12 copies every sum twice a step and spills some.
#if defined(__AVX512F__)
LILY_SIMD I32 dot16(I32 sum, Bytes a, Bytes b) {
  __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}
constexpr bool kCanPair = true;  // whether adds_beside_products() may be true
LILY_SIMD Bytes add16(Bytes a, Bytes b) { return _mm512_add_epi16(a, b); }
/// Word 2i + 1 in the place of word 2i, zero in its own.
LILY_SIMD Bytes odd_words(Bytes x) { return _mm512_maskz_shuffle_epi32(0x5555, x, _MM_PERM_ENUM(0xb1)); }
/// Eight sums of 32 bits.
LILY_SIMD __m256i add_halves(I32 x) { return _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1)); }
/// Halves of words from the two vectors, rounded to the nearest integers.
LILY_SIMD Bytes round_halves(F32 low, F32 high) {
  return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_cvtps_epi32(low), _mm512_slli_epi32(_mm512_cvtps_epi32(high), 16));
}
LILY_SIMD void store_int16(std::int16_t* p, F32 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(v)));
}
#else
constexpr bool kCanPair = false;
LILY_SIMD Bytes add16(Bytes a, Bytes b) { return _mm256_add_epi16(a, b); }
LILY_SIMD Bytes odd_words(Bytes x) { return _mm256_srli_epi64(x, 32); }
LILY_SIMD __m256i add_halves(I32 x) { return x; }
#if defined(__AVXVNNI__)
LILY_SIMD I32 dot16(I32 sum, Bytes a, Bytes b) {
  __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
  return sum;
}
#else
LILY_SIMD I32 dot16(I32 sum, Bytes a, Bytes b) { return add(sum, _mm256_madd_epi16(a, b)); }
#endif
LILY_SIMD Bytes round_halves(F32 low, F32 high) {
  return _mm256_blend_epi16(_mm256_cvtps_epi32(low), _mm256_slli_epi32(_mm256_cvtps_epi32(high), 16), 0xaa);
}
LILY_SIMD void store_int16(std::int16_t* p, F32 v) {
  const __m256i i = _mm256_cvtps_epi32(v);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(i, i), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
}
#endif

/// −Σ over words 2i, 2i + 1 of n words of the products of their halves, modulo 2^32.
LILY_SIMD std::int32_t minus_paired_products(const std::uint32_t* p, int n) {
  I32 sum = zero_int();
  LILY_FOR_LANES(i, lanes, n) {
    const Bytes x = load_words(p + i, lanes);
    sum = dot16(sum, x, odd_words(x));
  }
  const __m256i eight = add_halves(sum);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  return std::int32_t(0u - std::uint32_t(_mm_cvtsi128_si32(four)));
}

/// A block of keys as integers.
struct Int16Block {
  std::uint32_t* k;            // as in the cache: [kKeys16 / kKvGroup][key_words][kKvGroup]
  std::uint32_t* v;            // [padded / kPair][kKeys16 / 2][kPair]: a panel of kPair channels after another
  float *k_scale, *v_scale;    // [kKeys16]: back; zero for V beyond the last key
  int dim, key_words;
  std::int32_t* k_pairs;       // [kKeys16]: −Σ of the products of a key's words 2i and 2i + 1
  std::int32_t* v_pairs;       // [kKeys16 / kPair][padded]: −Σ of those of V's words, over all keys up to the end of a pair of vectors
  bool paired;
};

LILY_SIMD void round_keys(const KeyBlock& from, const Int16Block& to) {
  for (int key = 0; key < from.n; key += kLanes) {
    const std::uint32_t* in = key_lanes(from, key);
    std::uint32_t* out = to.k + (in - from.k);
    F32 x[2], sum[2] = {zero(), zero()}, most = zero();
    for (int w = 0; w < from.key_words; ++w) {
      KvBf16::unpack(load_bytes(in + w * kKvGroup), x);
      for (int i = 0; i < 2; ++i) sum[i] = fma(x[i], x[i], sum[i]), most = max(abs(x[i]), most);
    }
    float into[kLanes];
    store(into, max(most, sqrt(sum[0] + sum[1]) * set1(0.5f)));  // a NaN stays: the second wins
    for (int i = 0; i < kLanes; ++i) {
      const Scale s = power_scale(into[i], kKeyMost);
      into[i] = s.into;
      to.k_scale[key + i] = s.back;
    }
    const F32 scale = load(into);
    for (int w = 0; w < from.key_words; ++w) {
      KvBf16::unpack(load_bytes(in + w * kKvGroup), x);
      store_bytes(out + w * kKvGroup, round_halves(x[0] * scale, x[1] * scale));
    }
    if (!to.paired) continue;
    I32 pairs = zero_int();
    for (int w = 0; w + 2 <= from.key_words; w += 2) pairs = dot16(pairs, load_bytes(out + w * kKvGroup), load_bytes(out + (w + 1) * kKvGroup));
    store_bytes(to.k_pairs + key, subtract(zero_int(), pairs));
  }
}

LILY_SIMD void round_values(const KeyBlock& from, const Int16Block& to) {
  for (int key = 0; key < kKeys16; ++key) to.v_scale[key] = 0;
  for (int key = 0; key < from.n; key += 2) {
    const std::uint32_t* in = from.v + std::int64_t(key) / 2 * from.dim;
    F32 x[2], most[2] = {zero(), zero()}, bad[2] = {zero(), zero()};
    LILY_FOR_LANES(c, n, from.dim) {
      KvBf16::unpack(load_words(in + c, n), x);
      for (int i = 0; i < 2; ++i) {
        most[i] = max(abs(x[i]), most[i]);
        bad[i] = fma(x[i], zero(), bad[i]);
      }
    }
    float into[2];
    for (int i = 0; i < 2; ++i) {
      const Scale s = power_scale(max_lane(most[i]) + sum(bad[i]), kValueMost);
      into[i] = key + i < from.n ? s.into : 0;
      if (key + i < from.n) to.v_scale[key + i] = s.back;
    }
    LILY_FOR_LANES(c, n, from.dim) {
      KvBf16::unpack(load_words(in + c, n), x);
      std::uint32_t* out = to.v + (c / kPair * (kKeys16 / 2) + key / 2) * kPair + c % kPair;
      store_bytes(out, round_halves(x[0] * set1(into[0]), x[1] * set1(into[1])));
    }
  }
  if (!to.paired) return;
  for (int c = 0; c < from.dim; c += kLanes) {
    std::uint32_t* v = to.v + c / kPair * (kKeys16 / 2) * kPair + c % kPair;
    for (int key = int(round_up(from.n, 2)); key < round_up(from.n, kPair); key += 2) store_bytes(v + key / 2 * kPair, zero_int());
    I32 pairs = zero_int();
    for (int key = 0; key < from.n; key += 4) {
      pairs = subtract(pairs, dot16(zero_int(), load_bytes(v + key / 2 * kPair), load_bytes(v + (key / 2 + 1) * kPair)));
      if (key % kPair == kPair - 4 || key + 4 >= from.n) store_bytes(to.v_pairs + key / kPair * round_up(from.dim, kPair) + c, pairs);
    }
  }
}

/// One query head's integers, `dim` rounded up to whole vectors, zero beyond dim. Returns what to multiply q·k's with.
LILY_SIMD float round_query(const float* q, int dim, std::int16_t* out) {
  F32 most = zero();
  LILY_FOR_LANES(c, n, dim) most = max(abs(load_part(q + c, n)), most);
  const float norm = first(sqrt(set1(sum_squares(q, dim))));
  if (!(norm < __builtin_inff())) return __builtin_nanf("");
  const float by_norm = norm / kQueryNorm, by_most = max_lane(most) / kQueryMost, back = by_norm > by_most ? by_norm : by_most;
  const F32 into = set1(norm < 0x1p-60f ? 0 : 1 / back);
  LILY_FOR_LANES(c, n, dim) store_int16(out + c, load_part(q + c, n) * into);
  return back;
}

/// Q query heads of one row: integers q_stride words apart, and their scales.
struct Int16Queries {
  const std::uint32_t* q;
  std::int64_t q_stride;
  const float* scale;  // with 1/sqrt(dim)
  const std::int32_t* pairs;  // paired: −Σ of the products of words 2i and 2i + 1
};

/// scores[h][key … key + kPair) of Q heads.
template <int Q, bool Paired>
LILY_SIMD void score_tile16(Int16Block b, Int16Queries x, int key, float* scores) {
  I32 c[Q][2];
  for (int h = 0; h < Q; ++h) c[h][0] = c[h][1] = zero_int();
  const KeyBlock lanes{b.k, nullptr, 0, b.dim, b.key_words};
  const std::uint32_t *k0 = key_lanes(lanes, key), *k1 = key_lanes(lanes, key + kLanes);
  int w = 0;
  if constexpr (Paired) {
    const I32 p0 = load_bytes(b.k_pairs + key), p1 = load_bytes(b.k_pairs + key + kLanes);
    for (int h = 0; h < Q; ++h) {
      const I32 p = broadcast4(x.pairs + h);
      c[h][0] = add(p0, p), c[h][1] = add(p1, p);
    }
    for (; w + 2 <= b.key_words; w += 2) {
      const Bytes y0 = load_bytes(k0 + w * kKvGroup), y1 = load_bytes(k1 + w * kKvGroup);
      const Bytes z0 = load_bytes(k0 + (w + 1) * kKvGroup), z1 = load_bytes(k1 + (w + 1) * kKvGroup);
      for (int h = 0; h < Q; ++h) {
        const Bytes y = broadcast4(x.q + h * x.q_stride + w), z = broadcast4(x.q + h * x.q_stride + w + 1);
        c[h][0] = dot16(c[h][0], add16(y, z0), add16(z, y0));
        c[h][1] = dot16(c[h][1], add16(y, z1), add16(z, y1));
      }
    }
  }
  for (; w < b.key_words; ++w) {
    const Bytes y0 = load_bytes(k0 + w * kKvGroup), y1 = load_bytes(k1 + w * kKvGroup);
    for (int h = 0; h < Q; ++h) {
      const Bytes q = broadcast4(x.q + h * x.q_stride + w);
      c[h][0] = dot16(c[h][0], q, y0);
      c[h][1] = dot16(c[h][1], q, y1);
    }
  }
  const F32 s0 = load(b.k_scale + key), s1 = load(b.k_scale + key + kLanes);
  for (int h = 0; h < Q; ++h) {
    const F32 scale = set1(x.scale[h]);
    store(scores + h * kKeys16 + key, to_float(c[h][0]) * s0 * scale);
    store(scores + h * kKeys16 + key + kLanes, to_float(c[h][1]) * s1 * scale);
  }
}

/// s[h][0 … n): scores, then their exponentials below the block's own maximum; p: their integers with V's scales, zero up to the
/// next whole pair; pairs[h] (paired): −Σ of the products of p's words 2i and 2i + 1. keep[h]: what the sums so far are multiplied with,
/// gain[h]: this block's integer sums.
template <int Q, bool Paired>
LILY_SIMD void softmax_step16(float* s, std::int16_t* p, int n, const float* v_scale, float* m, float* l, float* keep, float* gain,
                              std::int32_t* pairs) {
  float now[Q], total[Q];
  const int vectors = (n + kPair - 1) / kPair * 2;
  for (int i = 0; i < Q; ++i) {
    F32 most = set1(-__builtin_inff());
    for (int j = 0; j < vectors; ++j) {
      F32 x = load(s + i * kKeys16 + j * kLanes);
      const int lanes = n - j * kLanes;
      if (lanes < kLanes) {
        x = keep_n(x, lanes < 0 ? 0 : lanes, set1(-__builtin_inff()));
        store(s + i * kKeys16 + j * kLanes, x);
      }
      most = max(most, x);
    }
    now[i] = max_lane(most);
  }
  for (int i = 0; i < Q; ++i) {
    F32 sum_e = zero(), sum_t = zero(), most_t = zero();
    for (int j = 0; j < vectors; ++j) {
      const F32 e = exp(load(s + i * kKeys16 + j * kLanes) - set1(now[i]));
      F32 t = e * load(v_scale + j * kLanes);
      const int lanes = n - j * kLanes;
      if (lanes < kLanes) t = keep_n(t, lanes < 0 ? 0 : lanes, zero());  // not 0·NaN of a later key
      store(s + i * kKeys16 + j * kLanes, t);
      sum_e = sum_e + e;
      sum_t = sum_t + t;
      most_t = max(t, most_t);
    }
    total[i] = sum(sum_e);
    const float by_sum = sum(sum_t) / kWeightSum, by_most = max_lane(most_t) / kWeightMost;
    gain[i] = by_most > by_sum ? by_most : by_sum;  // NaN when the sum is
    const F32 into = set1(gain[i] > 0 ? 1 / gain[i] : 0);
    for (int j = 0; j < vectors; ++j) store_int16(p + i * kKeys16 + j * kLanes, load(s + i * kKeys16 + j * kLanes) * into);
    if (Paired) pairs[i] = minus_paired_products(reinterpret_cast<const std::uint32_t*>(p + i * kKeys16), vectors * kLanes / 2);
  }
  for (int i = 0; i < Q; i += kLanes) {
    const int lanes = Q - i < kLanes ? Q - i : kLanes;
    const F32 before = load_n(m + i, lanes), block = load_n(now + i, lanes), after = max(before, block);
    const F32 k = exp(before - after), g = exp(block - after);
    store_n(m + i, after, lanes);
    store_n(keep + i, k, lanes);
    store_n(l + i, fma(load_n(l + i, lanes), k, load_n(total + i, lanes) * g), lanes);
    store_n(gain + i, load_n(gain + i, lanes) * g, lanes);
  }
}

/// o[h][c … c + kPair) ← keep[h]·o + gain[h]·Σ_key p[h][key]·V, for the panel that begins at channel c.
template <int Q, bool Paired>
LILY_SIMD void value_tile16(const Int16Block& b, int n, const std::int16_t* p, const std::int32_t* pairs, const float* keep, const float* gain,
                            int c, HeadSums s) {
  I32 sum[Q][2];
  for (int h = 0; h < Q; ++h) sum[h][0] = sum[h][1] = zero_int();
  const std::uint32_t* v = b.v + std::int64_t(c) * (kKeys16 / 2);
  int key = 0;
  if constexpr (Paired) {
    const std::int32_t* v_pairs = b.v_pairs + (n - 1) / kPair * round_up(b.dim, kPair) + c;
    const I32 p0 = load_bytes(v_pairs), p1 = load_bytes(v_pairs + kLanes);
    for (int h = 0; h < Q; ++h) {
      const I32 own = broadcast4(pairs + h);
      sum[h][0] = add(p0, own), sum[h][1] = add(p1, own);
    }
    for (; key < round_up(n, kPair); key += 4, v += 2 * kPair) {
      const Bytes y0 = load_bytes(v), y1 = load_bytes(v + kLanes), z0 = load_bytes(v + kPair), z1 = load_bytes(v + kPair + kLanes);
      for (int h = 0; h < Q; ++h) {
        const Bytes y = broadcast4(p + h * kKeys16 + key), z = broadcast4(p + h * kKeys16 + key + 2);
        sum[h][0] = dot16(sum[h][0], add16(y, z0), add16(z, y0));
        sum[h][1] = dot16(sum[h][1], add16(y, z1), add16(z, y1));
      }
    }
  }
  for (; key < n; key += 2, v += kPair) {
    const Bytes v0 = load_bytes(v), v1 = load_bytes(v + kLanes);
    for (int h = 0; h < Q; ++h) {
      const Bytes w = broadcast4(p + h * kKeys16 + key);
      sum[h][0] = dot16(sum[h][0], w, v0);
      sum[h][1] = dot16(sum[h][1], w, v1);
    }
  }
  for (int h = 0; h < Q; ++h) {
    float* o = s.o + h * s.o_stride + c;
    const F32 k = set1(keep[h]), g = set1(gain[h]);
    store(o, fma(to_float(sum[h][0]), g, load(o) * k));
    store(o + kLanes, fma(to_float(sum[h][1]), g, load(o + kLanes) * k));
  }
}

/// Rows that take turns with a panel of keys or of channels while it lies in the first cache.
constexpr int kTurnRows = 4;
struct Turn {
  int n;           // keys that the row sees; 0: no row
  Int16Queries q;  // at the first of Q heads
  HeadSums sums;
};

/// One more block of keys for Q heads of the rows. scores, p: [kTurnRows][Q][kKeys16].
template <int Q, bool Paired>
static void attend_block16(Int16Block b, const Turn* turns, float* scores, std::int16_t* p) {
  float keep[kTurnRows][Q], gain[kTurnRows][Q];
  std::int32_t pairs[kTurnRows][Q];
  for (int key = 0; key < kKeys16; key += kPair) {
    for (int r = 0; r < kTurnRows; ++r) {
      if (key < turns[r].n) score_tile16<Q, Paired>(b, turns[r].q, key, scores + r * Q * kKeys16);
    }
  }
  for (int r = 0; r < kTurnRows; ++r) {
    const Turn& t = turns[r];
    if (t.n > 0) softmax_step16<Q, Paired>(scores + r * Q * kKeys16, p + r * Q * kKeys16, t.n, b.v_scale, t.sums.m, t.sums.l, keep[r], gain[r], pairs[r]);
  }
  for (int c = 0; c < b.dim; c += kPair) {
    for (int r = 0; r < kTurnRows; ++r) {
      if (turns[r].n > 0) value_tile16<Q, Paired>(b, turns[r].n, p + r * Q * kKeys16, pairs[r], keep[r], gain[r], c, turns[r].sums);
    }
  }
}

}  // namespace lily::ops::LILY_ISA
#endif
