#include "ops/gather_rows/gather_rows.h"

#include <cstring>

namespace lily::ops {

GatherRowsArgs bind_gather_rows(const plan::Op& op, const Pass& pass) {
  return {.x = pass.at<const float>(op.reads[0]),
          .row = pass.output_row,
          .y = pass.at<float>(op.writes[0]),
          .rows = pass.output_rows,
          .width = int(pass.plan->buffers[op.reads[0]].width)};
}

void gather_rows_ref(const GatherRowsArgs& a) {
  for (int r = 0; r < a.rows; ++r)
    std::memcpy(a.y + std::int64_t(r) * a.width, a.x + std::int64_t(a.row[r]) * a.width, std::size_t(a.width) * sizeof(float));
}

}  // namespace lily::ops
