#include "ops/quantize_rows/quantize_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace lily::ops {

QuantizeRowsArgs bind_quantize_rows(const plan::Op& op, const Pass& pass) {
  return {.x = pass.at<const float>(op.reads[0]),
          .q = pass.at<std::byte>(op.writes[0]),
          .rows = pass.rows_of(op.reads[0]),
          .layout = {int(pass.plan->buffers[op.reads[0]].width), op.activations == plan::Activations::int16 ? 2 : 1}};
}

// Sums of group g from those of its halves in units of `unit`.
static void store_sums(const QuantLayout& l, int used, int g, std::int32_t first, std::int32_t second, float unit, std::byte* row) {
  const auto at = [&](int group) { return reinterpret_cast<float*>(row + l.sum_offset(used, group)); };
  at(32)[2 * g] = float(first) * unit;
  at(32)[2 * g + 1] = float(second) * unit;
  at(64)[g] = float(first + second) * unit;
  if (g % 2) at(128)[g / 2] = at(64)[g - 1] + at(64)[g];
}

// A value that is not finite poisons its group through the scale, which is not finite either: its integer does not matter.
static int integer(float f) { return std::isfinite(f) ? int(f) : 0; }

void quantize_rows_ref(const QuantizeRowsArgs& a) {
  const QuantLayout& l = a.layout;
  for (int r = 0; r < a.rows; ++r) {
    const float* x = a.x + std::int64_t(r) * l.width;
    std::byte* row = a.q + r * l.row_bytes();
    auto* scales = reinterpret_cast<float*>(row + l.scale_offset());
    for (int g = 0; g < l.width / kQuantGroup; ++g) {
      const float* v = x + g * kQuantGroup;
      float largest = 0;
      for (int i = 0; i < kQuantGroup; ++i) largest = std::isnan(v[i]) || std::isnan(largest) ? NAN : std::max(largest, std::fabs(v[i]));
      const float scale = largest / kQuantMost;
      const float inverse = largest >= kQuantSmallest ? kQuantMost / largest : 0.0f;
      scales[g] = scale;
      std::int32_t sum[2] = {}, sum2[2] = {};  // of the group's halves
      std::int32_t pairs = 0;
      for (int i = 0; i < kQuantGroup; ++i) {
        const float t = v[i] * inverse;
        const int q1 = integer(std::nearbyint(t));  // t is a NaN where the largest value is infinite
        const int q2 = l.terms == 2 ? integer(std::clamp(std::nearbyint((t - float(q1)) * 256.0f), -127.0f, 127.0f)) : 0;
        const std::int64_t at = l.position(g * kQuantGroup + i);
        row[l.term_offset(0) + at] = std::byte(q1);
        if (l.terms == 2) row[l.term_offset(1) + at] = std::byte(q2);
        sum[i / 32] += q1;
        sum2[i / 32] += q2;
      }
      for (int i = g * kQuantGroup; i < (g + 1) * kQuantGroup; i += 2) {
        const int even = std::int8_t(row[l.position(i)]), odd = std::int8_t(row[l.position(i + 1)]);
        pairs += kPairShift * even - kPairRaise * odd - even * odd;
      }
      std::memcpy(row + l.pair_offset() + 4 * g, &pairs, 4);
      store_sums(l, 1, g, sum[0], sum[1], scale, row);
      if (l.terms == 2) store_sums(l, 2, g, 256 * sum[0] + sum2[0], 256 * sum[1] + sum2[1], scale / 256.0f, row);
    }
  }
}

}  // namespace lily::ops
