// Medians and spreads of repeated measurements.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lily::bench {

/// Of an even number of values: the mean of the two in the middle. 0 for none.
double median(std::vector<double> values);

struct Spread {
  double median = 0, min = 0, max = 0;
};
Spread spread(const std::vector<double>& values);

/// Of the bits of all logits (FNV-1a, 64 bits, as 16 hexadecimal digits): equal exactly when every bit is.
std::string logits_hash(std::span<const float> logits);

}  // namespace lily::bench
