#include "ops/expert_sort/expert_sort.h"

namespace lily::ops {

ExpertSortArgs bind_expert_sort(const plan::Op& op, const Pass& pass) {
  return {.expert = pass.at<const std::int32_t>(op.reads[0]),
          .groups = pass.at<std::int32_t>(op.writes[0]),
          .rows = pass.rows,
          .experts = pass.shape->experts,
          .k = pass.shape->experts_per_token};
}

void expert_sort_ref(const ExpertSortArgs& a) {
  std::int32_t* offsets = a.groups;
  std::int32_t* pairs = a.groups + a.experts + 1;
  std::int32_t at = 0;
  for (int e = 0; e < a.experts; ++e) {
    offsets[e] = at;
    for (std::int32_t pair = 0; pair < a.rows * a.k; ++pair)
      if (a.expert[pair] == e) pairs[at++] = pair;
  }
  offsets[a.experts] = at;
}

}  // namespace lily::ops
