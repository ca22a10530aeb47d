#include "cli/memory_plan.h"

namespace lily::cli {

MemoryPlan memory_plan(Engine& engine, const Weights& weights, std::int64_t context) {
  const StateLayout& layout = engine.backend().state_layout();
  const std::int64_t logits = std::int64_t(engine.shape().vocab) * 4;
  return {.context = context,
          .weights = weights.bytes(),
          .kv_per_token = layout.kv_block_bytes / kKvBlockTokens,
          .kv = kv_blocks(context) * layout.kv_block_bytes,
          .recurrent_state = layout.recurrent_bytes(),
          .snapshots = engine.options().snapshots * (layout.recurrent_bytes() + logits),
          .scratch = engine.backend().scratch_bytes(),
          .logits = logits};
}

}  // namespace lily::cli
