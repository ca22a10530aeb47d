// expert_sort: reads expert; writes groups (int32).
#pragma once
#include "ops/pass.h"

namespace lily::ops {
/// The (token, slot) pairs grouped by expert, in ascending order within a group:
///   groups[0 … experts]            offsets: pairs of expert e lie at offsets[e] … offsets[e+1]
///   groups[experts + 1 … + rows·k] pair index token·k + slot
struct ExpertSortArgs {
  const std::int32_t* expert;  // [rows, k]
  std::int32_t* groups;        // [experts + 1 + rows·k]
  int rows, experts, k;
};
ExpertSortArgs bind_expert_sort(const plan::Op& op, const Pass& pass);
void expert_sort_ref(const ExpertSortArgs& a);
}  // namespace lily::ops
