#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

// A NaN counts as −infinity, so that the order is total and k different experts are chosen whatever the logits hold; the row's
// weights become NaN, so that the fault shows in the end.
LILY_SIMD float router_value(float logit) { return logit == logit ? logit : -__builtin_inff(); }

std::int64_t router_topk_units(const RouterTopkArgs& a) { return a.rows; }  // a unit is a row

void router_topk_run(const RouterTopkArgs& a, std::int64_t begin, std::int64_t end, CpuScratch&) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float* logits = a.logits + r * a.experts;
    std::int32_t* chosen = a.expert + r * a.k;
    float* weight = a.weight + r * a.k;
    // chosen[0 … n) in descending order; an expert goes behind equal ones, so ties keep the lower index.
    int n = 0;
    bool nan = false;
    for (std::int32_t e = 0; e < a.experts; ++e) {
      const float v = router_value(logits[e]);
      nan |= logits[e] != logits[e];
      if (n == a.k && !(v > weight[n - 1])) continue;
      int i = n < a.k ? n++ : n - 1;
      for (; i > 0 && v > weight[i - 1]; --i) {
        weight[i] = weight[i - 1];
        chosen[i] = chosen[i - 1];
      }
      weight[i] = v;
      chosen[i] = e;
    }
    const float largest = weight[0];
    for (int i = 1; i < n; ++i) {  // ascending order of index: insertion again
      const float v = weight[i];
      const std::int32_t e = chosen[i];
      int j = i;
      for (; j > 0 && chosen[j - 1] > e; --j) {
        weight[j] = weight[j - 1];
        chosen[j] = chosen[j - 1];
      }
      weight[j] = v;
      chosen[j] = e;
    }
    // The softmax's denominator over all experts cancels when the chosen ones are renormalised.
    float sum = 0;
    for (int i = 0; i < n; ++i) {
      weight[i] = exp1(weight[i] - largest);
      sum += weight[i];
    }
    for (int i = 0; i < n; ++i) weight[i] = nan ? __builtin_nanf("") : weight[i] / sum;
  }
}

}  // namespace lily::ops::LILY_ISA
