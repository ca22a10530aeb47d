#include "plan/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lily::plan {
namespace {

std::string short_name(const std::string& name) { return name.substr(name.find('.') == std::string::npos ? 0 : name.find('.') + 1); }

std::string names(const Plan& plan, const std::vector<BufferId>& ids) {
  std::string out;
  for (BufferId b : ids) out += (out.empty() ? "" : ", ") + short_name(plan.buffers[b].name);
  return out;
}

// The first layer of each kind stands for the others.
bool shown(const Op& op, const ModelShape& shape) { return op.layer < 0 || shape.index_in_kind(op.layer) == 0; }

}  // namespace

std::string explain(const Plan& plan, const Weights& weights, const CostInput& in, bool all_layers) {
  const Cost total = cost(plan, weights, in);
  std::string out = fmt::format("{} plan: {} ops in {} stages; {} rows at position {}: {:.1f} MB of weights, {:.1f} MB of state, "
                                "{:.2f} G multiply-adds\n",
                                plan.phase == Phase::decode ? "decode" : "prefill", plan.ops.size(), plan.stages, in.rows,
                                in.position, total.weight_bytes / 1e6, total.state_bytes / 1e6, total.multiply_adds / 1e9);
  out += fmt::format("{:>5}  {:<28} {:<16} {:>10} {:>10}  {}\n", "stage", "op", "kind", "MB", "M mul-add", "reads → writes");
  int stage = -1;
  bool skipped = false;
  for (const Op& op : plan.ops) {
    if (!all_layers && !shown(op, weights.shape())) {
      if (!skipped) out += "       … further layers look the same (--all-layers shows them)\n";
      skipped = true;
      continue;
    }
    skipped = false;
    const Cost c = cost(plan, op, weights, in);
    out += fmt::format("{:>5}  {:<28} {:<16} {:>10.3f} {:>10.3f}  {} → {}\n", op.stage == stage ? "" : std::to_string(op.stage),
                       op.name, op_name(op.kind), c.bytes() / 1e6, c.multiply_adds / 1e6, names(plan, op.reads),
                       names(plan, op.writes));
    stage = op.stage;
  }
  return out;
}

std::string explain_json(const Plan& plan, const Weights& weights, const CostInput& in) {
  nlohmann::ordered_json ops = nlohmann::ordered_json::array();
  auto buffer_names = [&](const std::vector<BufferId>& ids) {
    std::vector<std::string> out;
    for (BufferId b : ids) out.push_back(plan.buffers[b].name);
    return out;
  };
  for (const Op& op : plan.ops) {
    const Cost c = cost(plan, op, weights, in);
    std::vector<std::string> parts, roles;
    for (const Op& part : op.parts) parts.push_back(part.name);
    for (TensorId id : op.weights) roles.push_back(role_name(id.role));
    ops.push_back({{"name", op.name}, {"kind", op_name(op.kind)}, {"layer", op.layer}, {"stage", op.stage},
                   {"reads", buffer_names(op.reads)}, {"writes", buffer_names(op.writes)}, {"weights", roles}, {"parts", parts},
                   {"weight_bytes", c.weight_bytes}, {"state_bytes", c.state_bytes}, {"multiply_adds", c.multiply_adds}});
  }
  return nlohmann::ordered_json{{"phase", plan.phase == Phase::decode ? "decode" : "prefill"}, {"rows", in.rows},
                                {"position", in.position}, {"stages", plan.stages}, {"ops", ops}}.dump(1);
}

}  // namespace lily::plan
