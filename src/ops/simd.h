// One small vector layer for the CPU kernels: F32 is the instruction set's vector of floats, kLanes wide.
//
// Arithmetic is written with operators (a * b + c rounds twice: contraction is off); fma() rounds once. A partial vector
// (load_n, store_n) goes through the same instructions as a whole one, so an element's bits do not depend on where a row ends.
// Everything is forced inline into a namespace of its own for each instruction set: see ops/cpu_kernels.h.
#pragma once

#include <cstdint>

#include "base/half.h"

#if defined(__clang__) && defined(__x86_64__)
#include <immintrin.h>
#elif defined(__x86_64__)
// GCC 12 warns of its own intrinsics' undefined operands (fixed in 13).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <arm_neon.h>
#endif

#define LILY_SIMD static inline __attribute__((always_inline))

namespace lily::ops::LILY_ISA {

#if defined(__AVX512F__)
// ---------------------------------------------------------------------------------------------------- AVX-512
using F32 = __m512;
constexpr int kLanes = 16;

LILY_SIMD F32 set1(float x) { return _mm512_set1_ps(x); }
LILY_SIMD F32 load(const float* p) { return _mm512_loadu_ps(p); }
LILY_SIMD void store(float* p, F32 v) { _mm512_storeu_ps(p, v); }
LILY_SIMD __mmask16 first_lanes(int n) { return __mmask16((1u << n) - 1u); }
/// The first n (0 … kLanes) floats; the other lanes are zero.
LILY_SIMD F32 load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
LILY_SIMD void store_n(float* p, F32 v, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }
LILY_SIMD F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }    // a·b + c
LILY_SIMD F32 fnma(F32 a, F32 b, F32 c) { return _mm512_fnmadd_ps(a, b, c); }  // c − a·b
/// The larger one; y when either is NaN. min likewise.
LILY_SIMD F32 max(F32 x, F32 y) { return _mm512_max_ps(x, y); }
LILY_SIMD F32 min(F32 x, F32 y) { return _mm512_min_ps(x, y); }
LILY_SIMD F32 abs(F32 x) { return _mm512_abs_ps(x); }
LILY_SIMD F32 sqrt(F32 x) { return _mm512_sqrt_ps(x); }
/// Lanes 2i and 2i + 1 in each other's place.
LILY_SIMD F32 neighbours(F32 x) { return _mm512_permute_ps(x, 0xb1); }
LILY_SIMD F32 round_even(F32 x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/// x · 2^n, n integral in −150 … 128; rounds once, to subnormals and infinity too.
LILY_SIMD F32 scale_by_power(F32 x, F32 n) { return _mm512_scalef_ps(x, n); }
/// Lanes below n keep x, the others get `other`.
LILY_SIMD F32 keep_n(F32 x, int n, F32 other) { return _mm512_mask_blend_ps(first_lanes(n), other, x); }

LILY_SIMD float sum4(__m128 q) {
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
LILY_SIMD __m256 high_half(__m512 v) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1)); }
/// Of all lanes, by a fixed tree.
LILY_SIMD float sum(F32 v) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), high_half(v));
  return sum4(_mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1)));
}
LILY_SIMD float max_lane(F32 v) {
  const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(v), high_half(v));
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
/// out[i] = sum of a[i]'s lanes, i < N (2 or 4), by a tree that N does not change.
template <int N>
LILY_SIMD void store_sums(const F32* a, float* out) {
  const F32 f = _mm512_unpacklo_ps(a[0], a[1]) + _mm512_unpackhi_ps(a[0], a[1]);
  const F32 g = N == 4 ? _mm512_unpacklo_ps(a[N - 2], a[N - 1]) + _mm512_unpackhi_ps(a[N - 2], a[N - 1]) : f;
  const F32 e = _mm512_shuffle_ps(f, g, 0x44) + _mm512_shuffle_ps(f, g, 0xee);
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(e), high_half(e));
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  N == 4 ? _mm_storeu_ps(out, q) : _mm_storel_pi(reinterpret_cast<__m64*>(out), q);
}
/// Transposes the 4 × 4 floats of each 128-bit part of b[0 … 4).
LILY_SIMD void transpose_parts(const F32* b, F32* out) {
  const F32 lo01 = _mm512_unpacklo_ps(b[0], b[1]), hi01 = _mm512_unpackhi_ps(b[0], b[1]);
  const F32 lo23 = _mm512_unpacklo_ps(b[2], b[3]), hi23 = _mm512_unpackhi_ps(b[2], b[3]);
  out[0] = _mm512_shuffle_ps(lo01, lo23, 0x44);
  out[1] = _mm512_shuffle_ps(lo01, lo23, 0xee);
  out[2] = _mm512_shuffle_ps(hi01, hi23, 0x44);
  out[3] = _mm512_shuffle_ps(hi01, hi23, 0xee);
}
/// 4·kLanes floats p[4·i + j] as out[j] lane i.
LILY_SIMD void load_transposed4(const float* p, F32* out) {
  F32 b[4];  // b[r]: float 4-tuples r, r + 4, r + 8, r + 12
  for (int r = 0; r < 4; ++r) {
    b[r] = _mm512_castps128_ps512(_mm_loadu_ps(p + 4 * r));
    b[r] = _mm512_insertf32x4(b[r], _mm_loadu_ps(p + 16 + 4 * r), 1);
    b[r] = _mm512_insertf32x4(b[r], _mm_loadu_ps(p + 32 + 4 * r), 2);
    b[r] = _mm512_insertf32x4(b[r], _mm_loadu_ps(p + 48 + 4 * r), 3);
  }
  transpose_parts(b, out);
}
LILY_SIMD F32 load_bf16(const std::uint16_t* p) {
  const __m512i u = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
}
LILY_SIMD void store_bf16(std::uint16_t* p, F32 v) {
  const __m512i u = _mm512_castps_si512(v), high = _mm512_srli_epi32(u, 16);
  const __m512i even = _mm512_and_si512(high, _mm512_set1_epi32(1));
  __m512i r = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), even), 16);
  r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), high, _mm512_set1_epi32(0x40));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(r));
}
LILY_SIMD F32 load_f16(const std::uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

#elif defined(__AVX2__)
// ------------------------------------------------------------------------------------------------------- AVX2
using F32 = __m256;
constexpr int kLanes = 8;

LILY_SIMD F32 set1(float x) { return _mm256_set1_ps(x); }
LILY_SIMD F32 load(const float* p) { return _mm256_loadu_ps(p); }
LILY_SIMD void store(float* p, F32 v) { _mm256_storeu_ps(p, v); }
LILY_SIMD __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
LILY_SIMD F32 load_n(const float* p, int n) { return _mm256_maskload_ps(p, first_lanes(n)); }
LILY_SIMD void store_n(float* p, F32 v, int n) { _mm256_maskstore_ps(p, first_lanes(n), v); }
LILY_SIMD F32 fma(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
LILY_SIMD F32 fnma(F32 a, F32 b, F32 c) { return _mm256_fnmadd_ps(a, b, c); }
LILY_SIMD F32 max(F32 x, F32 y) { return _mm256_max_ps(x, y); }
LILY_SIMD F32 min(F32 x, F32 y) { return _mm256_min_ps(x, y); }
LILY_SIMD F32 abs(F32 x) { return _mm256_andnot_ps(set1(-0.0f), x); }
LILY_SIMD F32 sqrt(F32 x) { return _mm256_sqrt_ps(x); }
LILY_SIMD F32 neighbours(F32 x) { return _mm256_permute_ps(x, 0xb1); }
LILY_SIMD F32 round_even(F32 x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
LILY_SIMD F32 power_of_two(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
LILY_SIMD F32 scale_by_power(F32 x, F32 n) {  // in two steps, of which only the second can round
  const __m256i i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1);
  return x * power_of_two(half) * power_of_two(_mm256_sub_epi32(i, half));
}
LILY_SIMD F32 keep_n(F32 x, int n, F32 other) {
  return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(first_lanes(n)));
}

LILY_SIMD float sum(F32 v) {
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
LILY_SIMD float max_lane(F32 v) {
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
template <int N>
LILY_SIMD void store_sums(const F32* a, float* out) {
  const F32 f = _mm256_unpacklo_ps(a[0], a[1]) + _mm256_unpackhi_ps(a[0], a[1]);
  const F32 g = N == 4 ? _mm256_unpacklo_ps(a[N - 2], a[N - 1]) + _mm256_unpackhi_ps(a[N - 2], a[N - 1]) : f;
  const F32 e = _mm256_shuffle_ps(f, g, 0x44) + _mm256_shuffle_ps(f, g, 0xee);
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
  N == 4 ? _mm_storeu_ps(out, q) : _mm_storel_pi(reinterpret_cast<__m64*>(out), q);
}
LILY_SIMD void transpose_parts(const F32* b, F32* out) {
  const F32 lo01 = _mm256_unpacklo_ps(b[0], b[1]), hi01 = _mm256_unpackhi_ps(b[0], b[1]);
  const F32 lo23 = _mm256_unpacklo_ps(b[2], b[3]), hi23 = _mm256_unpackhi_ps(b[2], b[3]);
  out[0] = _mm256_shuffle_ps(lo01, lo23, 0x44);
  out[1] = _mm256_shuffle_ps(lo01, lo23, 0xee);
  out[2] = _mm256_shuffle_ps(hi01, hi23, 0x44);
  out[3] = _mm256_shuffle_ps(hi01, hi23, 0xee);
}
LILY_SIMD void load_transposed4(const float* p, F32* out) {
  F32 b[4];
  for (int r = 0; r < 4; ++r) {
    b[r] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + 4 * r)), _mm_loadu_ps(p + 16 + 4 * r), 1);
  }
  transpose_parts(b, out);
}
LILY_SIMD F32 load_bf16(const std::uint16_t* p) {
  const __m256i u = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
}
LILY_SIMD void store_bf16(std::uint16_t* p, F32 v) {
  const __m256i u = _mm256_castps_si256(v), high = _mm256_srli_epi32(u, 16);
  const __m256i even = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i r = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), even), 16);
  const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i packed = _mm256_packus_epi32(_mm256_blendv_epi8(r, quiet, nan), _mm256_setzero_si256());
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}
LILY_SIMD F32 load_f16(const std::uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

#else
// ------------------------------------------------------------------------------------------------------- NEON
using F32 = float32x4_t;
constexpr int kLanes = 4;

LILY_SIMD F32 set1(float x) { return vdupq_n_f32(x); }
LILY_SIMD F32 load(const float* p) { return vld1q_f32(p); }
LILY_SIMD void store(float* p, F32 v) { vst1q_f32(p, v); }
LILY_SIMD F32 load_n(const float* p, int n) {
  float t[4] = {0, 0, 0, 0};
  for (int i = 0; i < n; ++i) t[i] = p[i];
  return vld1q_f32(t);
}
LILY_SIMD void store_n(float* p, F32 v, int n) {
  float t[4];
  vst1q_f32(t, v);
  for (int i = 0; i < n; ++i) p[i] = t[i];
}
LILY_SIMD F32 fma(F32 a, F32 b, F32 c) { return vfmaq_f32(c, a, b); }
LILY_SIMD F32 fnma(F32 a, F32 b, F32 c) { return vfmsq_f32(c, a, b); }
LILY_SIMD F32 max(F32 x, F32 y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
LILY_SIMD F32 min(F32 x, F32 y) { return vbslq_f32(vcltq_f32(x, y), x, y); }
LILY_SIMD F32 abs(F32 x) { return vabsq_f32(x); }
LILY_SIMD F32 sqrt(F32 x) { return vsqrtq_f32(x); }
LILY_SIMD F32 neighbours(F32 x) { return vrev64q_f32(x); }
LILY_SIMD F32 round_even(F32 x) { return vrndnq_f32(x); }
LILY_SIMD F32 power_of_two(int32x4_t n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}
LILY_SIMD F32 scale_by_power(F32 x, F32 n) {
  const int32x4_t i = vcvtnq_s32_f32(n), half = vshrq_n_s32(i, 1);
  return x * power_of_two(half) * power_of_two(vsubq_s32(i, half));
}
LILY_SIMD F32 keep_n(F32 x, int n, F32 other) {
  const std::uint32_t lane[4] = {0, 1, 2, 3};
  return vbslq_f32(vcltq_u32(vld1q_u32(lane), vdupq_n_u32(std::uint32_t(n))), x, other);
}

LILY_SIMD float sum(F32 v) {
  const float32x2_t h = vadd_f32(vget_low_f32(v), vget_high_f32(v));
  return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}
LILY_SIMD float max_lane(F32 v) {
  float t[4];
  vst1q_f32(t, v);
  const float a = t[0] > t[2] ? t[0] : t[2], b = t[1] > t[3] ? t[1] : t[3];
  return a > b ? a : b;
}
template <int N>
LILY_SIMD void store_sums(const F32* a, float* out) {
  const F32 f = vpaddq_f32(a[0], a[1]);
  if constexpr (N == 4) vst1q_f32(out, vpaddq_f32(f, vpaddq_f32(a[2], a[3])));
  else vst1_f32(out, vget_low_f32(vpaddq_f32(f, f)));
}
LILY_SIMD void load_transposed4(const float* p, F32* out) {
  const float32x4x4_t t = vld4q_f32(p);
  for (int j = 0; j < 4; ++j) out[j] = t.val[j];
}
LILY_SIMD F32 load_bf16(const std::uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
LILY_SIMD void store_bf16(std::uint16_t* p, F32 v) {
  const uint32x4_t u = vreinterpretq_u32_f32(v), high = vshrq_n_u32(u, 16);
  const uint32x4_t even = vandq_u32(high, vdupq_n_u32(1));
  const uint32x4_t r = vshrq_n_u32(vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), even), 16);
  vst1_u16(p, vmovn_u32(vbslq_u32(vceqq_f32(v, v), r, vorrq_u32(high, vdupq_n_u32(0x40)))));
}
LILY_SIMD F32 load_f16(const std::uint16_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
#endif

// ------------------------------------------------------------------------------------- the same on every one

LILY_SIMD F32 zero() { return set1(0.0f); }
/// `even` in lanes 0, 2, …, `odd` in the others.
LILY_SIMD F32 alternating(float even, float odd) {
  float v[kLanes];
  for (int i = 0; i < kLanes; ++i) v[i] = i % 2 ? odd : even;
  return load(v);
}
LILY_SIMD float first(F32 v) { return v[0]; }

/// e^x for every x: relative error below 2^-23 (1 unit in the last place), 0 and infinity at the ends, NaN for NaN.
/// x = n·ln 2 + r, |r| ≤ ln 2 / 2; e^r by its Taylor series to r^7 (next term: 5e-9); ln 2 in two parts so that r is exact.
LILY_SIMD F32 exp(F32 x) {
  x = min(set1(89.0f), max(set1(-104.0f), x));  // NaN stays: it is the second operand
  const F32 n = round_even(x * set1(1.44269504f));
  F32 r = fnma(n, set1(0.693359375f), x);
  r = fnma(n, set1(-2.12194440e-4f), r);
  F32 p = set1(1.0f / 5040);
  p = fma(p, r, set1(1.0f / 720));
  p = fma(p, r, set1(1.0f / 120));
  p = fma(p, r, set1(1.0f / 24));
  p = fma(p, r, set1(1.0f / 6));
  p = fma(p, r, set1(0.5f));
  p = fma(p, r, set1(1.0f));
  p = fma(p, r, set1(1.0f));
  return scale_by_power(p, n);
}
LILY_SIMD F32 sigmoid(F32 x) { return set1(1.0f) / (set1(1.0f) + exp(zero() - x)); }
/// x·sigmoid(x); NaN at −infinity, as the quotient defines it.
LILY_SIMD F32 silu(F32 x) { return x / (set1(1.0f) + exp(zero() - x)); }
/// ln(1 + e^x) = max(x, 0) + ln(1 + y), y = e^−|x| in 0 … 1; ln(1 + y) = 2·atanh(s), s = y / (2 + y) ≤ 1/3, by its series to s^15
/// (next term, relative: 9^-8/17 = 1.4e-9).
LILY_SIMD F32 softplus(F32 x) {
  const F32 y = exp(zero() - abs(x));
  const F32 s = y / (set1(2.0f) + y), t = s * s;
  F32 p = set1(1.0f / 15);
  p = fma(p, t, set1(1.0f / 13));
  p = fma(p, t, set1(1.0f / 11));
  p = fma(p, t, set1(1.0f / 9));
  p = fma(p, t, set1(1.0f / 7));
  p = fma(p, t, set1(1.0f / 5));
  p = fma(p, t, set1(1.0f / 3));
  p = fma(p, t, set1(1.0f));
  return fma(s + s, p, max(zero(), x));
}
/// 1/sqrt(x), both steps correctly rounded.
LILY_SIMD float rsqrt(float x) { return first(set1(1.0f) / sqrt(set1(x))); }
LILY_SIMD float exp1(float x) { return first(exp(set1(x))); }

/// Σ x[i]² over a row: two running sums (vectors 0, 2, 4 … and 1, 3, 5 …), then a fixed tree.
LILY_SIMD float sum_squares(const float* x, int n) {
  F32 a = zero(), b = zero();
  int i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const F32 u = load(x + i), v = load(x + i + kLanes);
    a = fma(u, u, a);
    b = fma(v, v, b);
  }
  if (i + kLanes <= n) {
    const F32 u = load(x + i);
    a = fma(u, u, a);
    i += kLanes;
  }
  if (i < n) {
    const F32 u = load_n(x + i, n - i);
    b = fma(u, u, b);
  }
  return sum(a + b);
}

/// y[i] = f(i, vector at i) for i < n in whole vectors, then one partial: f takes (offset, lanes).
#define LILY_FOR_LANES(i, lanes, n)                                                                     \
  for (std::int64_t i = 0, lanes; lanes = (n) - i < kLanes ? (n) - i : std::int64_t(kLanes), i < (n); i += kLanes)
/// load_n that is a plain load for a whole vector.
LILY_SIMD F32 load_part(const float* p, std::int64_t lanes) { return lanes == kLanes ? load(p) : load_n(p, int(lanes)); }
LILY_SIMD void store_part(float* p, F32 v, std::int64_t lanes) {
  if (lanes == kLanes) store(p, v);
  else store_n(p, v, int(lanes));
}

}  // namespace lily::ops::LILY_ISA
