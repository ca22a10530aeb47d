// The integer side of ops/simd.h: vectors of code bytes (unsigned) and activation bytes (signed), and their dot products.
//
// A Bytes vector has 4·kLanes bytes; a dot product leaves in 32-bit lane i the sum over bytes 4i … 4i + 3. All sums are exact,
// so every instruction set gives the same integers:
//   - VNNI multiplies unsigned by signed bytes into 32 bits as it is;
//   - AVX2 adds pairs of products in 16 bits, NEON without dot products single ones: with codes up to 15 eight steps fit
//     (8·2·15·127 = 30480), so larger codes are split into their nibbles ("wide") and put together at the end;
//   - NEON's dot product is signed by signed: the same split keeps codes below 128.
#pragma once

#include <string.h>

#include "ops/simd.h"

// Members of types in this namespace: inlined, like LILY_SIMD functions.
#define LILY_SIMD_MEMBER inline __attribute__((always_inline))

namespace lily::ops::LILY_ISA {

constexpr int kByteLanes = 4 * kLanes;
/// Steps that a Dot takes at most between start (or next_term) and total.
#if defined(__AVX512F__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_DOTPROD)
constexpr int kDotSteps = 16;
#else
constexpr int kDotSteps = 8;
#endif

/// Which group of columns a lane of a dot product belongs to. A step of `lane_cols`·kLanes columns begins at a multiple of its own
/// length; groups are powers of two, 32 at least.
struct LaneGroups;
LILY_SIMD LaneGroups lane_groups(std::int64_t group, int lane_cols);
/// The groups' values (scales of a row) over the lanes of the step that begins at column `col`. Reads kLanes floats.
LILY_SIMD F32 over_lanes(const LaneGroups& g, const float* values, std::int64_t col);

#if defined(__x86_64__)
LILY_SIMD std::int32_t load_dword(const void* p) {
  std::int32_t v;
  memcpy(&v, p, 4);
  return v;
}
#endif

#if defined(__x86_64__)
/// Keeps the compiler from reading b's memory again at each use: a load that crosses a line costs two.
template <class V>
LILY_SIMD V loaded_once(V b) {
  __asm__("" : "+v"(b));
  return b;
}
#else
template <class V>
LILY_SIMD V loaded_once(V b) { return b; }
#endif

#if defined(__AVX512F__)
// ---------------------------------------------------------------------------------------------------- AVX-512
using Bytes = __m512i;
using I32 = __m512i;

/// Whether vectors of integers are added by other ports than multiply them, so that products in pairs pay (gemm_panel.h, Form::paired).
LILY_SIMD bool adds_beside_products() { return __builtin_cpu_is("amd"); }

LILY_SIMD I32 zero_int() { return _mm512_setzero_si512(); }
LILY_SIMD I32 as_int(Bytes b) { return b; }
LILY_SIMD Bytes as_bytes(I32 a) { return a; }
LILY_SIMD I32 add(I32 a, I32 b) { return _mm512_add_epi32(a, b); }
LILY_SIMD I32 subtract(I32 a, I32 b) { return _mm512_sub_epi32(a, b); }
LILY_SIMD Bytes add_bytes(Bytes a, Bytes b) { return _mm512_add_epi8(a, b); }
LILY_SIMD Bytes set1_byte(int x) { return _mm512_set1_epi8(char(x)); }
LILY_SIMD I32 times256(I32 a) { return _mm512_slli_epi32(a, 8); }
LILY_SIMD F32 to_float(I32 a) { return _mm512_cvtepi32_ps(a); }
LILY_SIMD Bytes load_bytes(const void* p) { return _mm512_loadu_si512(p); }
LILY_SIMD void store_bytes(void* p, Bytes v) { _mm512_storeu_si512(p, v); }
/// The first n (a multiple of 16) bytes; zero beyond.
LILY_SIMD Bytes load_bytes_part(const void* p, int n) {
  return _mm512_maskz_loadu_epi32(__mmask16((1u << n / 4) - 1u), p);
}
/// Four bytes into every lane.
LILY_SIMD Bytes broadcast4(const void* p) { return _mm512_set1_epi32(load_dword(p)); }
/// 16 bytes into every four lanes.
LILY_SIMD Bytes broadcast16(const void* p) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
LILY_SIMD Bytes low_nibbles(Bytes b) { return _mm512_and_si512(b, _mm512_set1_epi8(15)); }
LILY_SIMD Bytes high_nibbles(Bytes b) { return _mm512_and_si512(_mm512_srli_epi16(b, 4), _mm512_set1_epi8(15)); }
/// Of every dword: the low or the high half as a bfloat16.
LILY_SIMD F32 low_bf16(Bytes b) { return _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)); }
LILY_SIMD F32 high_bf16(Bytes b) { return _mm512_castsi512_ps(_mm512_and_si512(b, _mm512_set1_epi32(int(0xffff0000u)))); }

LILY_SIMD __m512i four_rows(const void* p, std::int64_t stride) {  // 16 bytes of rows 0, 4, 8, 12
  const char* c = static_cast<const char*>(p);
  const auto row = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(c + i * stride)); };
  __m512i v = _mm512_castsi128_si512(row(0));
  v = _mm512_mask_broadcast_i32x4(v, 0x00f0, row(4));
  v = _mm512_mask_broadcast_i32x4(v, 0x0f00, row(8));
  return _mm512_mask_broadcast_i32x4(v, 0xf000, row(12));
}
/// 16 bytes of each of kLanes rows, `stride` apart: out[j] has dword j of row i in lane i.
LILY_SIMD void load_transposed(const void* p, std::int64_t stride, Bytes* out) {
  const char* c = static_cast<const char*>(p);
  const __m512i r0 = four_rows(c, stride), r1 = four_rows(c + stride, stride), r2 = four_rows(c + 2 * stride, stride),
                r3 = four_rows(c + 3 * stride, stride);
  const __m512i lo01 = _mm512_unpacklo_epi32(r0, r1), hi01 = _mm512_unpackhi_epi32(r0, r1);
  const __m512i lo23 = _mm512_unpacklo_epi32(r2, r3), hi23 = _mm512_unpackhi_epi32(r2, r3);
  out[0] = _mm512_unpacklo_epi64(lo01, lo23);
  out[1] = _mm512_unpackhi_epi64(lo01, lo23);
  out[2] = _mm512_unpacklo_epi64(hi01, hi23);
  out[3] = _mm512_unpackhi_epi64(hi01, hi23);
}
/// Lane 4·b + j: the sum of lanes 4·b … 4·b + 3 of d[j], in which four_rows(p + j·stride, stride) has row 4·b + j.
LILY_SIMD I32 transposed_sum(const I32 (&d)[4]) {
  const I32 d01 = add(_mm512_unpacklo_epi32(d[0], d[1]), _mm512_unpackhi_epi32(d[0], d[1]));
  const I32 d23 = add(_mm512_unpacklo_epi32(d[2], d[3]), _mm512_unpackhi_epi32(d[2], d[3]));
  return add(_mm512_unpacklo_epi64(d01, d23), _mm512_unpackhi_epi64(d01, d23));
}

struct LaneGroups {
  __m512i lane;
  int shift;
};
LILY_SIMD LaneGroups lane_groups(std::int64_t group, int lane_cols) {
  const int shift = __builtin_ctzll(std::uint64_t(group));
  const __m512i at = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return {_mm512_srl_epi32(_mm512_mullo_epi32(at, _mm512_set1_epi32(lane_cols)), _mm_cvtsi32_si128(shift)), shift};
}
LILY_SIMD F32 over_lanes(const LaneGroups& g, const float* values, std::int64_t col) {
  return _mm512_permutexvar_ps(g.lane, _mm512_loadu_ps(values + (col >> g.shift)));
}

template <bool kWide>
struct Dot {
  I32 a = _mm512_setzero_si512();
  LILY_SIMD_MEMBER void step(Bytes code, Bytes x) { a = _mm512_dpbusd_epi32(a, code, x); }
  LILY_SIMD_MEMBER void next_term() { a = times256(a); }
  LILY_SIMD_MEMBER I32 total() const { return a; }
};

#elif defined(__AVX2__)
// --------------------------------------------------------------------------------------------- AVX2, AVX-VNNI
using Bytes = __m256i;
using I32 = __m256i;

LILY_SIMD bool adds_beside_products() { return false; }

LILY_SIMD I32 zero_int() { return _mm256_setzero_si256(); }
LILY_SIMD I32 as_int(Bytes b) { return b; }
LILY_SIMD Bytes as_bytes(I32 a) { return a; }
LILY_SIMD I32 add(I32 a, I32 b) { return _mm256_add_epi32(a, b); }
LILY_SIMD I32 subtract(I32 a, I32 b) { return _mm256_sub_epi32(a, b); }
LILY_SIMD Bytes add_bytes(Bytes a, Bytes b) { return _mm256_add_epi8(a, b); }
LILY_SIMD Bytes set1_byte(int x) { return _mm256_set1_epi8(char(x)); }
LILY_SIMD I32 times256(I32 a) { return _mm256_slli_epi32(a, 8); }
LILY_SIMD F32 to_float(I32 a) { return _mm256_cvtepi32_ps(a); }
LILY_SIMD Bytes load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
LILY_SIMD void store_bytes(void* p, Bytes v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
LILY_SIMD Bytes load_bytes_part(const void* p, int n) {
  if (n == 0) return _mm256_setzero_si256();
  return _mm256_inserti128_si256(_mm256_setzero_si256(), _mm_loadu_si128(static_cast<const __m128i*>(p)), 0);
}
LILY_SIMD Bytes broadcast4(const void* p) { return _mm256_set1_epi32(load_dword(p)); }
LILY_SIMD Bytes low_nibbles(Bytes b) { return _mm256_and_si256(b, _mm256_set1_epi8(15)); }
LILY_SIMD Bytes high_nibbles(Bytes b) { return _mm256_and_si256(_mm256_srli_epi16(b, 4), _mm256_set1_epi8(15)); }
LILY_SIMD F32 low_bf16(Bytes b) { return _mm256_castsi256_ps(_mm256_slli_epi32(b, 16)); }
LILY_SIMD F32 high_bf16(Bytes b) { return _mm256_castsi256_ps(_mm256_and_si256(b, _mm256_set1_epi32(int(0xffff0000u)))); }

LILY_SIMD __m256i two_rows(const void* p, std::int64_t stride) {  // 16 bytes of rows 0 and 4
  const char* c = static_cast<const char*>(p);
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(c))),
                                 _mm_loadu_si128(reinterpret_cast<const __m128i*>(c + 4 * stride)), 1);
}
LILY_SIMD void load_transposed(const void* p, std::int64_t stride, Bytes* out) {
  const char* c = static_cast<const char*>(p);
  const __m256i r0 = two_rows(c, stride), r1 = two_rows(c + stride, stride), r2 = two_rows(c + 2 * stride, stride),
                r3 = two_rows(c + 3 * stride, stride);
  const __m256i lo01 = _mm256_unpacklo_epi32(r0, r1), hi01 = _mm256_unpackhi_epi32(r0, r1);
  const __m256i lo23 = _mm256_unpacklo_epi32(r2, r3), hi23 = _mm256_unpackhi_epi32(r2, r3);
  out[0] = _mm256_unpacklo_epi64(lo01, lo23);
  out[1] = _mm256_unpackhi_epi64(lo01, lo23);
  out[2] = _mm256_unpacklo_epi64(hi01, hi23);
  out[3] = _mm256_unpackhi_epi64(hi01, hi23);
}

struct LaneGroups {
  __m256i lane;
  int shift;
};
LILY_SIMD LaneGroups lane_groups(std::int64_t group, int lane_cols) {
  const int shift = __builtin_ctzll(std::uint64_t(group));
  const __m256i at = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm256_srl_epi32(_mm256_mullo_epi32(at, _mm256_set1_epi32(lane_cols)), _mm_cvtsi32_si128(shift)), shift};
}
LILY_SIMD F32 over_lanes(const LaneGroups& g, const float* values, std::int64_t col) {
  return _mm256_permutevar8x32_ps(_mm256_loadu_ps(values + (col >> g.shift)), g.lane);
}

#if defined(__AVXVNNI__)
template <bool kWide>
struct Dot {
  I32 a = _mm256_setzero_si256();
  LILY_SIMD_MEMBER void step(Bytes code, Bytes x) { a = _mm256_dpbusd_avx_epi32(a, code, x); }
  LILY_SIMD_MEMBER void next_term() { a = times256(a); }
  LILY_SIMD_MEMBER I32 total() const { return a; }
};
#else
template <bool kWide>
struct Dot {  // narrow: codes up to 15
  __m256i a = _mm256_setzero_si256();  // sums in 16 bits
  I32 before = _mm256_setzero_si256();
  LILY_SIMD_MEMBER void step(Bytes code, Bytes x) { a = _mm256_add_epi16(a, _mm256_maddubs_epi16(code, x)); }
  LILY_SIMD_MEMBER void next_term() {
    before = times256(total());
    a = _mm256_setzero_si256();
  }
  LILY_SIMD_MEMBER I32 total() const { return add(before, _mm256_madd_epi16(a, _mm256_set1_epi16(1))); }
};
template <>
struct Dot<true> {
  __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
  I32 before = _mm256_setzero_si256();
  LILY_SIMD_MEMBER void step(Bytes code, Bytes x) {
    low = _mm256_add_epi16(low, _mm256_maddubs_epi16(low_nibbles(code), x));
    high = _mm256_add_epi16(high, _mm256_maddubs_epi16(high_nibbles(code), x));
  }
  LILY_SIMD_MEMBER void next_term() {
    before = times256(total());
    low = high = _mm256_setzero_si256();
  }
  LILY_SIMD_MEMBER I32 total() const {
    return add(before, add(_mm256_madd_epi16(low, _mm256_set1_epi16(1)), _mm256_madd_epi16(high, _mm256_set1_epi16(16))));
  }
};
#endif

#else
// ------------------------------------------------------------------------------------------------------- NEON
using Bytes = uint8x16_t;
using I32 = int32x4_t;

LILY_SIMD bool adds_beside_products() { return false; }

LILY_SIMD I32 zero_int() { return vdupq_n_s32(0); }
LILY_SIMD I32 as_int(Bytes b) { return vreinterpretq_s32_u8(b); }
LILY_SIMD Bytes as_bytes(I32 a) { return vreinterpretq_u8_s32(a); }
LILY_SIMD I32 add(I32 a, I32 b) { return vaddq_s32(a, b); }
LILY_SIMD I32 subtract(I32 a, I32 b) { return vsubq_s32(a, b); }
LILY_SIMD Bytes add_bytes(Bytes a, Bytes b) { return vaddq_u8(a, b); }
LILY_SIMD Bytes set1_byte(int x) { return vdupq_n_u8(std::uint8_t(x)); }
LILY_SIMD I32 times256(I32 a) { return vshlq_n_s32(a, 8); }
LILY_SIMD F32 to_float(I32 a) { return vcvtq_f32_s32(a); }
LILY_SIMD Bytes load_bytes(const void* p) { return vld1q_u8(static_cast<const std::uint8_t*>(p)); }
LILY_SIMD void store_bytes(void* p, Bytes v) { vst1q_u8(static_cast<std::uint8_t*>(p), v); }
LILY_SIMD Bytes load_bytes_part(const void*, int) { return vdupq_n_u8(0); }  // 16 bytes are a whole vector
LILY_SIMD Bytes broadcast4(const void* p) {
  std::uint32_t v;
  memcpy(&v, p, 4);
  return vreinterpretq_u8_u32(vdupq_n_u32(v));
}
LILY_SIMD Bytes low_nibbles(Bytes b) { return vandq_u8(b, vdupq_n_u8(15)); }
LILY_SIMD Bytes high_nibbles(Bytes b) { return vshrq_n_u8(b, 4); }
LILY_SIMD F32 low_bf16(Bytes b) { return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u8(b), 16)); }
LILY_SIMD F32 high_bf16(Bytes b) {
  return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u8(b), vdupq_n_u32(0xffff0000u)));
}
LILY_SIMD void load_transposed(const void* p, std::int64_t stride, Bytes* out) {
  const auto* c = static_cast<const std::uint8_t*>(p);
  const uint32x4_t r0 = vreinterpretq_u32_u8(vld1q_u8(c)), r1 = vreinterpretq_u32_u8(vld1q_u8(c + stride)),
                   r2 = vreinterpretq_u32_u8(vld1q_u8(c + 2 * stride)), r3 = vreinterpretq_u32_u8(vld1q_u8(c + 3 * stride));
  const uint64x2_t lo01 = vreinterpretq_u64_u32(vzip1q_u32(r0, r1)), hi01 = vreinterpretq_u64_u32(vzip2q_u32(r0, r1));
  const uint64x2_t lo23 = vreinterpretq_u64_u32(vzip1q_u32(r2, r3)), hi23 = vreinterpretq_u64_u32(vzip2q_u32(r2, r3));
  out[0] = vreinterpretq_u8_u64(vzip1q_u64(lo01, lo23));
  out[1] = vreinterpretq_u8_u64(vzip2q_u64(lo01, lo23));
  out[2] = vreinterpretq_u8_u64(vzip1q_u64(hi01, hi23));
  out[3] = vreinterpretq_u8_u64(vzip2q_u64(hi01, hi23));
}

struct LaneGroups {  // a step is 32 columns at most: one group
  int shift;
};
LILY_SIMD LaneGroups lane_groups(std::int64_t group, int) { return {__builtin_ctzll(std::uint64_t(group))}; }
LILY_SIMD F32 over_lanes(const LaneGroups& g, const float* values, std::int64_t col) {
  return vdupq_n_f32(values[col >> g.shift]);
}

#if defined(__ARM_FEATURE_DOTPROD)
struct Sums {  // 32-bit sums of four products
  I32 a = vdupq_n_s32(0);
  LILY_SIMD_MEMBER void step(Bytes code, Bytes x) { a = vdotq_s32(a, vreinterpretq_s8_u8(code), vreinterpretq_s8_u8(x)); }
  LILY_SIMD_MEMBER I32 total() const { return a; }
};
#else
struct Sums {  // 16-bit sums of single products: at most 8·15·127
  int16x8_t a = vdupq_n_s16(0), b = vdupq_n_s16(0);
  LILY_SIMD_MEMBER void step(Bytes code, Bytes x) {
    const int8x16_t c = vreinterpretq_s8_u8(code), s = vreinterpretq_s8_u8(x);
    a = vmlal_s8(a, vget_low_s8(c), vget_low_s8(s));
    b = vmlal_high_s8(b, c, s);
  }
  LILY_SIMD_MEMBER I32 total() const { return vpaddq_s32(vpaddlq_s16(a), vpaddlq_s16(b)); }
};
#endif
template <bool kWide>
struct Dot {  // narrow: codes up to 15
  Sums s;
  I32 before = vdupq_n_s32(0);
  LILY_SIMD_MEMBER void step(Bytes code, Bytes x) { s.step(code, x); }
  LILY_SIMD_MEMBER void next_term() {
    before = times256(total());
    s = Sums();
  }
  LILY_SIMD_MEMBER I32 total() const { return add(before, s.total()); }
};
template <>
struct Dot<true> {
  Sums low, high;
  I32 before = vdupq_n_s32(0);
  LILY_SIMD_MEMBER void step(Bytes code, Bytes x) {
    low.step(low_nibbles(code), x);
    high.step(high_nibbles(code), x);
  }
  LILY_SIMD_MEMBER void next_term() {
    before = times256(total());
    low = high = Sums();
  }
  LILY_SIMD_MEMBER I32 total() const { return add(before, add(low.total(), vshlq_n_s32(high.total(), 4))); }
};
#endif

}  // namespace lily::ops::LILY_ISA
