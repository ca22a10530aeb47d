#include "plan/hazards.h"

#include <algorithm>

#include "base/error.h"

namespace lily::plan {

void schedule(Plan& plan) {
  // By buffer: the stage of its last write and of its last read so far; -1 for none.
  std::vector<int> last_write(plan.buffers.size(), -1), last_read(plan.buffers.size(), -1);
  plan.stages = 0;
  for (Op& op : plan.ops) {
    int stage = 0;
    for (BufferId b : op.reads) stage = std::max(stage, last_write[b] + 1);
    for (BufferId b : op.writes) stage = std::max({stage, last_write[b] + 1, last_read[b] + 1});
    for (BufferId b : op.reads) last_read[b] = std::max(last_read[b], stage);
    for (BufferId b : op.writes) last_write[b] = std::max(last_write[b], stage);
    op.stage = stage;
    plan.stages = std::max(plan.stages, stage + 1);
  }
  std::stable_sort(plan.ops.begin(), plan.ops.end(), [](const Op& a, const Op& b) { return a.stage < b.stage; });
}

void check_stages(const Plan& plan) {
  std::vector<const Op*> writer(plan.buffers.size(), nullptr), reader(plan.buffers.size(), nullptr);
  auto clash = [&](const Op* other, const Op& op, BufferId b) {
    if (other && other != &op && other->stage == op.stage)
      throw Error(ErrorCode::internal, "plan: " + op.name + " and " + other->name + " share stage " + std::to_string(op.stage) +
                                           " and buffer " + plan.buffers[b].name);
  };
  for (const Op& op : plan.ops) {
    for (BufferId b : op.reads) clash(writer[b], op, b);
    for (BufferId b : op.writes) {
      clash(writer[b], op, b);
      clash(reader[b], op, b);
    }
    for (BufferId b : op.reads) reader[b] = &op;
    for (BufferId b : op.writes) writer[b] = &op;
  }
}

}  // namespace lily::plan
