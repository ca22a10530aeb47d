#include "ops/router_topk/router_topk.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace lily::ops {

RouterTopkArgs bind_router_topk(const plan::Op& op, const Pass& pass) {
  return {.logits = pass.at<const float>(op.reads[0]),
          .expert = pass.at<std::int32_t>(op.writes[0]),
          .weight = pass.at<float>(op.writes[1]),
          .rows = pass.rows,
          .experts = pass.shape->experts,
          .k = pass.shape->experts_per_token};
}

void router_topk_ref(const RouterTopkArgs& a) {
  std::vector<float> p(std::size_t(a.experts));
  for (int r = 0; r < a.rows; ++r) {
    // A NaN counts as the smallest value, so that the order stays total; the weights carry it on to the logits' check.
    bool nan = false;
    for (int e = 0; e < a.experts; ++e) {
      const float l = a.logits[std::int64_t(r) * a.experts + e];
      nan |= std::isnan(l);
      p[std::size_t(e)] = std::isnan(l) ? -INFINITY : l;
    }
    std::vector<std::int32_t> order(std::size_t(a.experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int x, int y) { return p[std::size_t(x)] > p[std::size_t(y)]; });
    order.resize(std::size_t(a.k));
    std::sort(order.begin(), order.end());
    float largest = -INFINITY, sum = 0;
    for (int e : order) largest = std::max(largest, p[std::size_t(e)]);
    for (int s = 0; s < a.k; ++s) {
      a.expert[std::int64_t(r) * a.k + s] = order[std::size_t(s)];
      // softmax over all, renormalised over the chosen: the common denominator cancels.
      sum += a.weight[std::int64_t(r) * a.k + s] = std::exp(p[std::size_t(order[std::size_t(s)])] - largest);
    }
    for (int s = 0; s < a.k; ++s) a.weight[std::int64_t(r) * a.k + s] /= nan ? NAN : sum;
  }
}

}  // namespace lily::ops
