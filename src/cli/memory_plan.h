// The memory that a conversation is planned to take.
#pragma once

#include <cstdint>

#include "engine/engine.h"

namespace lily::cli {

/// In bytes, for one conversation of `context` tokens.
struct MemoryPlan {
  std::int64_t context = 0;
  std::int64_t weights = 0;          // mapped from the files, resident once they have been read
  std::int64_t kv_per_token = 0;
  std::int64_t kv = 0;               // whole blocks
  std::int64_t recurrent_state = 0;  // with the convolution window
  std::int64_t snapshots = 0;        // at most
  std::int64_t scratch = 0;          // of the back end, at most
  std::int64_t logits = 0;
  std::int64_t total() const { return weights + kv + recurrent_state + snapshots + scratch + logits; }
};

MemoryPlan memory_plan(Engine& engine, const Weights& weights, std::int64_t context);

}  // namespace lily::cli
