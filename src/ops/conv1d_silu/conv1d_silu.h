// conv1d_silu: reads qkv, window (state); writes y, window. weights: conv1d [channels, kernel].
#pragma once
#include "ops/pass.h"

namespace lily::ops {
/// y[t][c] = silu(Σ_j w[c][j] · in[t − (kernel−1) + j][c]), where rows before the segment come from the window; afterwards the
/// window holds the last kernel−1 input rows. The sum runs over j upwards, in float32.
struct Conv1dSiluArgs {
  const float* x;  // [rows, channels] before the convolution
  const float* w;  // [channels, kernel]
  float* y;        // [rows, channels]; not x
  std::span<const SegmentRows> segments;
  int gdn_layer;   // state->conv_of(gdn_layer): [kernel − 1, channels], oldest first
  int channels, kernel;
};
Conv1dSiluArgs bind_conv1d_silu(const plan::Op& op, const Pass& pass);
void conv1d_silu_ref(const Conv1dSiluArgs& a);
}  // namespace lily::ops
