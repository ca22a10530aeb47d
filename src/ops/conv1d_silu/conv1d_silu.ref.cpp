#include "ops/conv1d_silu/conv1d_silu.h"

#include <vector>

#include "ops/ref_math.h"

namespace lily::ops {

Conv1dSiluArgs bind_conv1d_silu(const plan::Op& op, const Pass& pass) {
  return {.x = pass.at<const float>(op.reads[0]),
          .w = pass.weight(op).vector(),
          .y = pass.at<float>(op.writes[0]),
          .segments = pass.segments,
          .gdn_layer = pass.shape->index_in_kind(op.layer),
          .channels = pass.shape->conv_channels(),
          .kernel = pass.shape->conv_kernel};
}

void conv1d_silu_ref(const Conv1dSiluArgs& a) {
  const int past = a.kernel - 1;
  for (const SegmentRows& seg : a.segments) {
    float* window = seg.state->conv_of(a.gdn_layer);
    std::vector<float> in(window, window + std::int64_t(past) * a.channels);  // window, then the segment's rows
    const float* x = a.x + std::int64_t(seg.row) * a.channels;
    in.insert(in.end(), x, x + std::int64_t(seg.rows) * a.channels);
    for (int t = 0; t < seg.rows; ++t)
      for (int c = 0; c < a.channels; ++c) {
        float sum = 0;
        for (int j = 0; j < a.kernel; ++j) sum += a.w[c * a.kernel + j] * in[std::size_t(t + j) * a.channels + c];
        a.y[(std::int64_t(seg.row) + t) * a.channels + c] = silu_ref(sum);
      }
    std::copy(in.end() - std::int64_t(past) * a.channels, in.end(), window);
  }
}

}  // namespace lily::ops
