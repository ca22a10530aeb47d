#include "bench/statistics.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/synthetic.h"

namespace lily::bench {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Spread spread(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto [min, max] = std::minmax_element(values.begin(), values.end());
  return {.median = median(values), .min = *min, .max = *max};
}

std::string logits_hash(std::span<const float> logits) {
  return fmt::format("{:016x}", fnv1a64({reinterpret_cast<const char*>(logits.data()), logits.size_bytes()}));
}

}  // namespace lily::bench
