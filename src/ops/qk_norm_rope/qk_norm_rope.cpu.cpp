#include <math.h>
#include <string.h>

#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

// out = rope(rms_norm(x; w)) of one head; out may be x. cos and sin: [rotary_dim / 2].
LILY_SIMD void norm_rope(const QkNormRopeArgs& a, const float* x, const float* w, const float* cos, const float* sin,
                         float* out) {
  const F32 scale = set1(rsqrt(sum_squares(x, a.head_dim) / float(a.head_dim) + a.eps));
  LILY_FOR_LANES(i, n, a.head_dim) store_part(out + i, load_part(x + i, n) * scale * load_part(w + i, n), n);
  const int half = a.rotary_dim / 2;
  LILY_FOR_LANES(j, n, half) {
    const F32 c = load_part(cos + j, n), s = load_part(sin + j, n);
    const F32 u = load_part(out + j, n), v = load_part(out + half + j, n);
    store_part(out + j, fnma(v, s, u * c), n);
    store_part(out + half + j, fma(u, s, v * c), n);
  }
}

std::int64_t qk_norm_rope_units(const QkNormRopeArgs& a) { return a.rows; }  // a unit is a row with all its heads

void qk_norm_rope_run(const QkNormRopeArgs& a, std::int64_t begin, std::int64_t end, CpuScratch& scratch) {
  const int half = a.rotary_dim / 2;
  float* frequency = reinterpret_cast<float*>(scratch.data);  // rope_frequency, which must not be emitted here
  float *cos_row = frequency + half, *sin_row = cos_row + half;
  for (int j = 0; j < half; ++j) frequency[j] = 1.0f / ::powf(float(a.theta), float(2 * j) / float(a.rotary_dim));
  for (std::int64_t r = begin; r < end; ++r) {
    const SegmentRows& seg = segment_of(a.segments.data(), int(r));
    const float position = float(seg.position + (r - seg.row));
    for (int j = 0; j < half; ++j) {
      cos_row[j] = ::cosf(position * frequency[j]);
      sin_row[j] = ::sinf(position * frequency[j]);
    }
    for (int h = 0; h < a.heads; ++h) {
      const std::int64_t at = (r * a.heads + h) * a.head_dim;
      norm_rope(a, a.qg + 2 * at, a.q_norm, cos_row, sin_row, a.q + at);
      memcpy(a.gate + at, a.qg + 2 * at + a.head_dim, std::size_t(a.head_dim) * sizeof(float));
    }
    for (int h = 0; h < a.kv_heads; ++h) {
      float* k = a.k + (r * a.kv_heads + h) * a.head_dim;
      norm_rope(a, k, a.k_norm, cos_row, sin_row, k);
    }
  }
}

}  // namespace lily::ops::LILY_ISA
