#include "plan/validate.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace lily::plan {
namespace {

[[noreturn]] void fail(const Op& op, const std::string& what) {
  throw Error(ErrorCode::internal, "plan: op " + op.name + ": " + what);
}

bool contains(const std::vector<BufferId>& v, BufferId b) { return std::find(v.begin(), v.end(), b) != v.end(); }

// Parts may write buffers of their own (read by later parts); all else must be declared by the fused op.
void validate_parts(const Plan& plan, const Op& op) {
  std::set<BufferId> inside;
  for (const Op& part : op.parts) {
    for (BufferId b : part.reads)
      if (!contains(op.reads, b) && !inside.count(b)) fail(op, "part " + part.name + " reads undeclared " + plan.buffers[b].name);
    inside.insert(part.writes.begin(), part.writes.end());
  }
  for (BufferId b : op.writes)
    if (!inside.count(b)) fail(op, "declares a write of " + plan.buffers[b].name + " that no part makes");
}

}  // namespace

void validate(const Plan& plan) {
  std::vector<bool> written(plan.buffers.size(), false);
  std::set<std::string> names;
  for (const Op& op : plan.ops) {
    if (!names.insert(op.name).second) fail(op, "the name occurs twice");
    for (const auto* ids : {&op.reads, &op.writes})
      for (BufferId b : *ids) {
        if (b < 0 || b >= BufferId(plan.buffers.size())) fail(op, "buffer id out of range");
        const Buffer& buffer = plan.buffers[b];
        if (buffer.space == Space::state && buffer.layer != op.layer) fail(op, "touches another layer's state " + buffer.name);
      }
    for (BufferId b : op.reads) {
      const Space space = plan.buffers[b].space;
      if (space != Space::input && space != Space::state && !written[b]) fail(op, "reads unwritten " + plan.buffers[b].name);
    }
    for (BufferId b : op.writes) {
      if (plan.buffers[b].space == Space::input) fail(op, "writes input " + plan.buffers[b].name);
      written[b] = true;
    }
    if (!op.parts.empty()) validate_parts(plan, op);
  }
  if (plan.logits < 0 || !written[plan.logits]) throw Error(ErrorCode::internal, "plan: nothing writes the logits");
}

}  // namespace lily::plan
