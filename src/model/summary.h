// What a model's weights consist of, for `lily inspect`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/weights.h"

namespace lily {

/// All tensors of one role that are stored in one way.
struct TensorGroup {
  std::string
      part;  // "embedding", "Gated DeltaNet", "attention", "router", "experts", "shared expert", "norms", "head"
  std::string role;    // role_name()
  std::string stored;  // "4 bits, groups of 64, BF16 scales", "BF16", "F32 vector"
  std::vector<std::int64_t> shape;  // of one tensor: [256, 512, 2048]
  int bits = 0, group = 0;
  int tensors = 0;           // how many layers have it
  std::int64_t weights = 0;  // numbers in all of them
  std::int64_t bytes = 0;    // codes, scales and biases of all of them
};
/// In the order of the walk through the model. A tied lm_head is not listed: it is the embedding.
std::vector<TensorGroup> summarize(const Weights& weights);

}  // namespace lily
