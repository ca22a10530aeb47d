// router_topk: reads logits; writes expert (int32), weight.
#pragma once
#include "ops/pass.h"

namespace lily::ops {
/// p = softmax(logits); the k largest, ties to the lower index, renormalised to sum 1; written in ascending order of index.
/// A row that holds a NaN chooses some k experts and gives each the weight NaN, so that the fault reaches the logits.
struct RouterTopkArgs {
  const float* logits;    // [rows, experts]
  std::int32_t* expert;   // [rows, k]
  float* weight;          // [rows, k]
  int rows, experts, k;
};
RouterTopkArgs bind_router_topk(const plan::Op& op, const Pass& pass);
void router_topk_ref(const RouterTopkArgs& a);
}  // namespace lily::ops
