#include "plan/liveness.h"

#include <algorithm>

#include "base/error.h"

namespace lily::plan {
namespace {

struct Life {
  BufferId buffer;
  int first = -1, last = -1;  // stages
  std::int64_t bytes = 0, offset = -1;
};

std::vector<Life> lives(const Plan& plan, int rows, int output_rows) {
  std::vector<Life> by_buffer(plan.buffers.size());
  for (const Op& op : plan.ops) {
    for (const auto* ids : {&op.reads, &op.writes})
      for (BufferId b : *ids) {
        Life& life = by_buffer[b];
        life.buffer = b;
        if (life.first < 0) life.first = op.stage;
        life.first = std::min(life.first, op.stage);
        life.last = std::max(life.last, op.stage);
      }
  }
  std::vector<Life> used;
  for (Life& life : by_buffer) {
    if (life.first < 0 || plan.buffers[life.buffer].space != Space::activation) continue;
    life.bytes = (plan.buffers[life.buffer].bytes(rows, output_rows) + 63) / 64 * 64;
    used.push_back(life);
  }
  return used;
}

bool overlap_in_time(const Life& a, const Life& b) { return a.first <= b.last && b.first <= a.last; }

}  // namespace

MemoryPlan assign_memory(const Plan& plan, int rows, int output_rows) {
  MemoryPlan memory;
  memory.offset.assign(plan.buffers.size(), -1);
  std::vector<Life> todo = lives(plan, rows, output_rows);
  // Largest first, each at the lowest offset that is free during its life.
  std::stable_sort(todo.begin(), todo.end(), [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
  std::vector<Life> placed;  // by offset
  for (Life life : todo) {
    std::int64_t offset = 0;
    for (const Life& other : placed)
      if (overlap_in_time(life, other) && offset + life.bytes > other.offset)
        offset = std::max(offset, other.offset + other.bytes);
    life.offset = offset;
    memory.offset[life.buffer] = offset;
    memory.bytes = std::max(memory.bytes, offset + life.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), life,
                                   [](const Life& a, const Life& b) { return a.offset < b.offset; }), life);
  }
  return memory;
}

void check_memory(const Plan& plan, const MemoryPlan& memory, int rows, int output_rows) {
  std::vector<Life> all = lives(plan, rows, output_rows);
  for (Life& life : all) life.offset = memory.offset[life.buffer];
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const Life &a = all[i], &b = all[j];
      if (overlap_in_time(a, b) && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes)
        throw Error(ErrorCode::internal, "plan: buffers " + plan.buffers[a.buffer].name + " and " + plan.buffers[b.buffer].name +
                                             " overlap in the arena while both live");
    }
}

}  // namespace lily::plan
