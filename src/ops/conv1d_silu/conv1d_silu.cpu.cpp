#include <string.h>

#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

constexpr int kConvChannels = 256;  // a unit is a block of channels of one segment, all its rows: it owns that part of the window
constexpr int kConvAhead = 8;       // rows: each lies in another page, which the processor's own prefetching does not enter

std::int64_t conv1d_silu_units(const Conv1dSiluArgs& a) {
  return std::int64_t(a.segments.size()) * div_up(a.channels, kConvChannels);
}

// taps[j][c] = w[c][j] for the block's channels.
LILY_SIMD void transpose_taps(const float* w, int kernel, int channels, float* taps) {
  int c = 0;
  if (kernel == 4) {
    for (; c + kLanes <= channels; c += kLanes) {
      F32 t[4];
      load_transposed4(w + 4 * c, t);
      for (int j = 0; j < 4; ++j) store(taps + j * kConvChannels + c, t[j]);
    }
  }
  for (; c < channels; ++c) {
    for (int j = 0; j < kernel; ++j) taps[j * kConvChannels + c] = w[c * kernel + j];
  }
}

// y = silu(Σ_j taps[j]·in[j]) over the block; in[j] is the row of tap j. K: the number of taps, or 0: as `kernel` says.
template <int K>
LILY_SIMD void conv_row(const float* const* in, const float* taps, int kernel, int channels, float* y) {
  const int k = K ? K : kernel;
  LILY_FOR_LANES(c, n, channels) {
    F32 sum = load_part(taps + c, n) * load_part(in[0] + c, n);
    for (int j = 1; j < k; ++j) sum = fma(load_part(taps + j * kConvChannels + c, n), load_part(in[j] + c, n), sum);
    store_part(y + c, silu(sum), n);
  }
}

void conv1d_silu_run(const Conv1dSiluArgs& a, std::int64_t begin, std::int64_t end, CpuScratch& scratch) {
  const std::int64_t parts = div_up(a.channels, kConvChannels);
  const int kernel = a.kernel, keep = kernel - 1;
  float* taps = reinterpret_cast<float*>(scratch.data);                  // [kernel][kConvChannels]
  float* window = taps + kernel * kConvChannels;                         // [keep][kConvChannels]: what the next pass needs
  const float** in = reinterpret_cast<const float**>(window + kernel * kConvChannels);  // [kernel]
  for (std::int64_t u = begin; u < end; ++u) {
    const SegmentRows& seg = a.segments.data()[u / parts];
    const std::int64_t c0 = u % parts * kConvChannels;
    const int channels = a.channels - c0 < kConvChannels ? int(a.channels - c0) : kConvChannels;
    float* state = seg.state->recurrent.conv.data() + a.gdn_layer * seg.state->layout.conv_floats + c0;
    const float* x = a.x + std::int64_t(seg.row) * a.channels + c0;
    float* y = a.y + std::int64_t(seg.row) * a.channels + c0;
    transpose_taps(a.w + c0 * kernel, kernel, channels, taps);
    for (int t = 0; t < seg.rows; ++t) {
      if (t + kConvAhead < seg.rows) {
        const std::int64_t at = std::int64_t(t + kConvAhead) * a.channels;
        for (int c = 0; c < channels; c += 16) __builtin_prefetch(x + at + c), __builtin_prefetch(y + at + c, 1);
      }
      for (int j = 0; j < kernel; ++j) {  // tap j reads row t − keep + j; rows before the segment lie in the window
        const int row = t - keep + j;
        in[j] = row < 0 ? state + std::int64_t(row + keep) * a.channels : x + std::int64_t(row) * a.channels;
      }
      if (kernel == 4) conv_row<4>(in, taps, 4, channels, y + std::int64_t(t) * a.channels);
      else conv_row<0>(in, taps, kernel, channels, y + std::int64_t(t) * a.channels);
    }
    for (int j = 0; j < keep; ++j) {
      const int row = seg.rows - keep + j;
      const float* from = row < 0 ? state + std::int64_t(row + keep) * a.channels : x + std::int64_t(row) * a.channels;
      memcpy(window + j * kConvChannels, from, std::size_t(channels) * sizeof(float));
    }
    for (int j = 0; j < keep; ++j) {
      memcpy(state + std::int64_t(j) * a.channels, window + j * kConvChannels, std::size_t(channels) * sizeof(float));
    }
  }
}

}  // namespace lily::ops::LILY_ISA
