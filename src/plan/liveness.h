// Memory: activation buffers share one arena when their lives do not overlap.
#pragma once

#include "plan/op.h"

namespace lily::plan {

struct MemoryPlan {
  std::vector<std::int64_t> offset;  // by BufferId; -1 for buffers that do not lie in the arena
  std::int64_t bytes = 0;            // of the arena
};

/// Places every activation buffer that an op of the (scheduled) plan names, sized for `rows` tokens of which `output_rows` want
/// logits. Offsets are multiples of 64. A buffer lives from the stage that first writes it to the stage that last reads it.
MemoryPlan assign_memory(const Plan& plan, int rows, int output_rows);

/// Error(internal) when two buffers that live at the same stage overlap in the arena.
void check_memory(const Plan& plan, const MemoryPlan& memory, int rows, int output_rows);

}  // namespace lily::plan
