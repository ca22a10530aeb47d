#include "model/summary.h"

#include <fmt/format.h>

#include "model/tensor_table.h"

namespace lily {
namespace {

const char* part_of(const TensorRow& row) {
  switch (row.role) {
    case Role::embed_tokens:
      return "embedding";
    case Role::lm_head:
      return "head";
    case Role::final_norm:
    case Role::input_norm:
    case Role::post_norm:
      return "norms";
    case Role::router:
      return "router";
    case Role::expert_gate_proj:
    case Role::expert_up_proj:
    case Role::expert_down_proj:
      return "experts";
    case Role::shared_expert_gate:
    case Role::shared_gate_proj:
    case Role::shared_up_proj:
    case Role::shared_down_proj:
      return "shared expert";
    default:
      return row.scope == Scope::gdn_layer ? "Gated DeltaNet" : "attention";
  }
}

std::string stored_as(const Matrix& m, Kind kind) {
  if (m.quantized()) return fmt::format("{} bits, groups of {}, {} scales", m.bits, m.group, dtype_name(m.scale_type));
  return std::string(dtype_name(m.plain)) + (kind == Kind::matrix || kind == Kind::stack ? "" : " vector");
}

}  // namespace

std::vector<TensorGroup> summarize(const Weights& weights) {
  std::vector<TensorGroup> groups;
  for (const TableEntry& entry : expand_table(weights.shape())) {
    const TensorId id{entry.row->role, entry.layer};
    if (!weights.has(id)) continue;
    const Matrix& m = weights.get(id);
    const std::string stored = stored_as(m, entry.row->kind), role = role_name(id.role);
    TensorGroup* group = nullptr;
    for (TensorGroup& g : groups)
      if (g.role == role && g.stored == stored) group = &g;
    if (!group) {
      group = &groups.emplace_back();
      group->part = part_of(*entry.row);
      group->role = role;
      group->stored = stored;
      group->bits = m.bits;
      group->group = m.group;
      if (m.count > 1 || entry.row->kind == Kind::stack)
        group->shape = {m.count, m.rows, m.cols};
      else if (m.rows > 1 || entry.row->kind == Kind::matrix)
        group->shape = {m.rows, m.cols};
      else
        group->shape = {m.cols};
    }
    ++group->tensors;
    group->weights += m.count * m.rows * m.cols;
    group->bytes += m.bytes();
  }
  return groups;
}

}  // namespace lily
