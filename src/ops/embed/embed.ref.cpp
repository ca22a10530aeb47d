#include "ops/embed/embed.h"

namespace lily::ops {

EmbedArgs bind_embed(const plan::Op& op, const Pass& pass) {
  return {.ids = pass.at<const std::int32_t>(op.reads[0]),
          .table = pass.weight(op),
          .x = pass.at<float>(op.writes[0]),
          .rows = pass.rows,
          .width = pass.shape->hidden};
}

void embed_ref(const EmbedArgs& a) {
  for (int r = 0; r < a.rows; ++r) dequantize_row(a.table, a.ids[r], a.x + std::int64_t(r) * a.width);
}

}  // namespace lily::ops
