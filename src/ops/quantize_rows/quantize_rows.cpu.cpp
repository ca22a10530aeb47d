// A unit is a row. The arithmetic is the reference form's, operation by operation, so the bits are the same on every
// instruction set. A row that holds an infinity or a NaN gets NaN scales: whatever reads it becomes NaN and is noticed.
#include "ops/cpu_kernels.h"
#include "ops/matmul/dot.h"

namespace lily::ops::LILY_ISA {

constexpr int kVectors = kQuantGroup / kLanes, kHalfVectors = kVectors / 2;

// 32 integral floats in −127 … 127 as bytes: those at even places to `even`, those at odd places to `odd`.
LILY_SIMD void store_split(const F32* v, std::byte* even, std::byte* odd) {
#if defined(__AVX512F__)
  const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i a = _mm512_cvtps_epi32(v[0]), b = _mm512_cvtps_epi32(v[1]);
  const __m512i e = _mm512_permutex2var_epi32(a, at, b);
  const __m512i o = _mm512_permutex2var_epi32(a, _mm512_or_si512(at, _mm512_set1_epi32(1)), b);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(even), _mm512_cvtepi32_epi8(e));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(odd), _mm512_cvtepi32_epi8(o));
#elif defined(__AVX2__)
  __m256i part[2][2];  // [even, odd][half]: 8 dwords in order
  for (int h = 0; h < 2; ++h) {
    const __m256 a = _mm256_castsi256_ps(_mm256_cvtps_epi32(v[2 * h]));
    const __m256 b = _mm256_castsi256_ps(_mm256_cvtps_epi32(v[2 * h + 1]));
    part[0][h] = _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)), 0xd8);
    part[1][h] = _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd)), 0xd8);
  }
  for (int i = 0; i < 2; ++i) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(part[i][0], part[i][1]), 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(i ? odd : even), bytes);
  }
#else
  for (int h = 0; h < 2; ++h) {  // 16 values: 8 even, 8 odd
    int32x4_t d[4];
    for (int i = 0; i < 4; ++i) d[i] = vcvtnq_s32_f32(v[4 * h + i]);
    const int16x8_t e = vcombine_s16(vmovn_s32(vuzp1q_s32(d[0], d[1])), vmovn_s32(vuzp1q_s32(d[2], d[3])));
    const int16x8_t o = vcombine_s16(vmovn_s32(vuzp2q_s32(d[0], d[1])), vmovn_s32(vuzp2q_s32(d[2], d[3])));
    vst1_s8(reinterpret_cast<std::int8_t*>(even) + 8 * h, vmovn_s16(e));
    vst1_s8(reinterpret_cast<std::int8_t*>(odd) + 8 * h, vmovn_s16(o));
  }
#endif
}

// A row's sums for one number of terms: of 32, 64 and 128 values.
struct RowSums {
  float* at[3];
};
LILY_SIMD void store_group_sums(const RowSums& s, std::int64_t g, const float* halves, float unit) {
  s.at[0][2 * g] = halves[0] * unit;
  s.at[0][2 * g + 1] = halves[1] * unit;
  s.at[1][g] = (halves[0] + halves[1]) * unit;
  if (g % 2) s.at[2][g / 2] = s.at[1][g - 1] + s.at[1][g];
}

template <int kTerms>
static void quantize_row(const float* x, const QuantLayout& l, std::byte* row) {
  const std::int64_t half = l.width / 2, groups = l.width / kQuantGroup;
  auto* scales = reinterpret_cast<float*>(row + l.scale_offset());
  RowSums sums[kTerms];
  for (int used = 1; used <= kTerms; ++used)
    for (int i = 0; i < 3; ++i) sums[used - 1].at[i] = reinterpret_cast<float*>(row + l.sum_offset(used, kSumGroups[i]));
  auto* pairs = reinterpret_cast<std::int32_t*>(row + l.pair_offset());
  const F32 of_pair = alternating(kPairShift, -kPairRaise);
  F32 bad = zero();
  for (std::int64_t g = 0; g < groups; ++g) {
    F32 v[kVectors];
    F32 most = zero();
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      v[i] = load(x + g * kQuantGroup + i * kLanes);
      most = max(most, abs(v[i]));
      bad = fma(v[i], zero(), bad);
    }
    const float largest = max_lane(most);
    const float scale = largest / kQuantMost;
    const F32 inverse = set1(largest >= kQuantSmallest ? kQuantMost / largest : 0.0f);
    scales[g] = scale;
    float half_sums[kTerms][2];  // integers below 2^24
    F32 pair_sum = zero();       // halves of such
    for (int h = 0; h < 2; ++h) {
      F32 q1[kHalfVectors], q2[kHalfVectors];
      F32 sum1 = zero(), sum2 = zero();
#pragma GCC unroll 8
      for (int i = 0; i < kHalfVectors; ++i) {
        const F32 t = v[h * kHalfVectors + i] * inverse;
        q1[i] = round_even(t);
        sum1 = sum1 + q1[i];  // exact: integers below 2^24
        pair_sum = fma(q1[i], of_pair, pair_sum);
        pair_sum = fma(q1[i] * set1(-0.5f), neighbours(q1[i]), pair_sum);  // each product is there twice
        if (kTerms == 2) {
          q2[i] = min(max(round_even((t - q1[i]) * set1(256.0f)), set1(-127.0f)), set1(127.0f));
          sum2 = fma(q1[i], set1(256.0f), sum2 + q2[i]);
        }
      }
      const std::int64_t at = 2 * g + h;
      std::byte* to = row + at * 16;
      store_split(q1, to, to + half);
      if (kTerms == 2) store_split(q2, to + l.width, to + l.width + half);
      half_sums[0][h] = sum(sum1);
      if (kTerms == 2) half_sums[kTerms - 1][h] = sum(sum2);
    }
    const float pair_total = sum(pair_sum);
    pairs[g] = pair_total == pair_total ? std::int32_t(pair_total) : 0;  // a NaN has no integer; the scales say it
    store_group_sums(sums[0], g, half_sums[0], scale);
    if (kTerms == 2) store_group_sums(sums[kTerms - 1], g, half_sums[kTerms - 1], scale / 256.0f);
  }
  const float poison = sum(bad);  // 0, or NaN
  if (poison != 0.0f)
    for (std::int64_t g = 0; g < groups; ++g) scales[g] = poison;
}

std::int64_t quantize_rows_units(const QuantizeRowsArgs& a) { return a.rows; }

void quantize_rows_run(const QuantizeRowsArgs& a, std::int64_t begin, std::int64_t end, CpuScratch&) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float* x = a.x + r * a.layout.width;
    std::byte* row = a.q + r * a.layout.row_bytes();
    a.layout.terms == 2 ? quantize_row<2>(x, a.layout, row) : quantize_row<1>(x, a.layout, row);
  }
}

}  // namespace lily::ops::LILY_ISA
