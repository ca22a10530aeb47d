#include "ops/add/add.h"

namespace lily::ops {

AddArgs bind_add(const plan::Op& op, const Pass& pass) {
  return {.y = pass.at<const float>(op.reads[0]),
          .residual = pass.at<float>(op.writes[0]),
          .rows = pass.rows,
          .width = pass.plan->buffers[op.reads[0]].width};
}

void add_ref(const AddArgs& a) {
  for (std::int64_t i = 0; i < a.rows * a.width; ++i) a.residual[i] += a.y[i];
}

}  // namespace lily::ops
