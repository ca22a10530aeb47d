#include "plan/fusion_table.h"

#include <algorithm>

#include "base/error.h"

namespace lily::plan {
namespace {

using K = OpKind;

const std::vector<FusionRow>& table() {
  static const std::vector<FusionRow> rows = {
      {"fused-expert-in", K::expert_in, {K::expert_linear, K::expert_linear, K::silu_mul}, {"cpu"}, true,
       "gate and up projections of the chosen experts and SiLU·mul in one pass over the rows of a group"},
      {"fused-expert-out", K::expert_out, {K::expert_linear, K::moe_combine}, {"cpu"}, false,
       "down projection, routing weights, shared expert and residual: no row per (token, slot) is ever written"},
      {"fused-linear-add", K::linear_add, {K::linear, K::add}, {"cpu"}, true,
       "output projection of a mixer and the residual sum"},
  };
  return rows;
}

bool contains(const std::vector<BufferId>& v, BufferId b) { return std::find(v.begin(), v.end(), b) != v.end(); }
void append_new(std::vector<BufferId>& to, BufferId b) {
  if (!contains(to, b)) to.push_back(b);
}
bool conflict(const Op& a, const Op& b) {
  for (BufferId w : a.writes)
    if (contains(b.reads, w) || contains(b.writes, w)) return true;
  for (BufferId w : b.writes)
    if (contains(a.reads, w)) return true;
  return false;
}

// Indices of the parts of `row` that end in ops[last], or empty. Walks back from the last part to whatever writes its inputs.
std::vector<std::size_t> match(const Plan& plan, const FusionRow& row, std::size_t last) {
  std::vector<std::size_t> found = {last};
  std::vector<K> missing(row.parts.begin(), row.parts.end() - 1);
  for (std::size_t i = last; i-- > 0 && !missing.empty();) {
    const Op& op = plan.ops[i];
    if (op.layer != plan.ops[last].layer || op.kind != missing.back()) continue;
    bool feeds = false;
    for (std::size_t f : found)
      for (BufferId b : plan.ops[f].reads) feeds |= contains(op.writes, b) && plan.buffers[b].space == Space::activation;
    if (!feeds) continue;
    found.insert(found.begin(), i);
    missing.pop_back();
  }
  return missing.empty() ? found : std::vector<std::size_t>{};
}

bool is_part(const std::vector<std::size_t>& parts, std::size_t i) {
  return std::find(parts.begin(), parts.end(), i) != parts.end();
}

// What the parts hand to each other must be theirs alone, and moving each part down to the last one must not cross an op that it
// conflicts with.
bool legal(const Plan& plan, const std::vector<std::size_t>& parts) {
  for (std::size_t p : parts) {
    if (p == parts.back()) continue;
    for (BufferId w : plan.ops[p].writes)
      for (std::size_t i = 0; i < plan.ops.size(); ++i)
        if (!is_part(parts, i) && contains(plan.ops[i].reads, w)) return false;
    for (std::size_t i = p + 1; i < parts.back(); ++i)
      if (!is_part(parts, i) && conflict(plan.ops[p], plan.ops[i])) return false;
  }
  return true;
}

Op make_fused(const Plan& plan, const FusionRow& row, const std::vector<std::size_t>& parts) {
  Op fused{.kind = row.fused, .layer = plan.ops[parts.back()].layer};
  std::vector<BufferId> inside;
  for (std::size_t p : parts) {
    const Op& part = plan.ops[p];
    for (BufferId b : part.reads)
      if (!contains(inside, b)) append_new(fused.reads, b);
    const bool is_last = p == parts.back();
    for (BufferId b : part.writes) is_last ? append_new(fused.writes, b) : append_new(inside, b);
    fused.weights.insert(fused.weights.end(), part.weights.begin(), part.weights.end());
    fused.ends_layer |= part.ends_layer;
    fused.parts.push_back(part);
  }
  fused.name = (fused.layer < 0 ? "" : "L" + std::to_string(fused.layer) + ".") + op_name(row.fused);
  return fused;
}

void apply(Plan& plan, const FusionRow& row) {
  for (std::size_t last = 0; last < plan.ops.size(); ++last) {
    if (plan.ops[last].kind != row.parts.back()) continue;
    const std::vector<std::size_t> parts = match(plan, row, last);
    if (parts.empty() || !legal(plan, parts)) continue;
    plan.ops[last] = make_fused(plan, row, parts);
    for (std::size_t p = parts.size() - 1; p-- > 0;) plan.ops.erase(plan.ops.begin() + std::ptrdiff_t(parts[p]));
    last -= parts.size() - 1;
  }
}

}  // namespace

std::span<const FusionRow> fusion_table() { return table(); }

Plan fuse(Plan plan, const std::string& backend, std::span<const std::string> off) {
  for (const std::string& name : off) {
    if (std::any_of(table().begin(), table().end(), [&](const FusionRow& r) { return name == r.name; })) continue;
    std::string known;
    for (const FusionRow& r : table()) known += std::string(known.empty() ? "" : ", ") + r.name;
    throw Error(ErrorCode::invalid_argument, "no fusion is named '" + name + "' (there are: " + known + ")");
  }
  for (const FusionRow& row : table()) {
    const bool has = std::find(row.backends.begin(), row.backends.end(), backend) != row.backends.end();
    const bool is_off = std::find(off.begin(), off.end(), row.name) != off.end();
    if (has && !is_off) apply(plan, row);
  }
  return plan;
}

std::string fusions_markdown() {
  std::string out =
      "# Fusions\n\nWritten by `lily help fusions` from src/plan/fusion_table.cpp; do not edit.\n\n"
      "| name | fused op | replaces | back ends | what it does |\n|---|---|---|---|---|\n";
  for (const FusionRow& row : table()) {
    std::string parts, backends;
    for (OpKind k : row.parts) parts += std::string(parts.empty() ? "" : ", ") + op_name(k);
    for (const std::string& b : row.backends) backends += (backends.empty() ? "" : ", ") + b;
    out += std::string("| ") + row.name + " | " + op_name(row.fused) + " | " + parts + " | " + backends + " | " + row.does + " |\n";
  }
  return out;
}

}  // namespace lily::plan
