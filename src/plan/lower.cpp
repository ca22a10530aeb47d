#include "plan/lower.h"

#include <algorithm>
#include <map>

#include "plan/quant_layout.h"

namespace lily::plan {
namespace {

bool is_product(OpKind k) {
  return k == OpKind::linear || k == OpKind::linear_add || k == OpKind::expert_linear || k == OpKind::expert_in ||
         k == OpKind::expert_out;
}

// Outputs that decide over others, or that nothing averages out again.
bool steers(Role role) {
  return role == Role::router || role == Role::shared_expert_gate || role == Role::in_proj_a || role == Role::in_proj_b ||
         role == Role::lm_head;
}

// The weights that multiply reads[0]: all of the op's, since a fused op's other parts have none.
bool all_quantized(const Op& op, const Weights& weights) {
  return std::all_of(op.weights.begin(), op.weights.end(), [&](TensorId id) { return weights.get(id).quantized(); });
}

void read_quantized(Op& op, BufferId from, BufferId to, Activations activations) {
  for (Op& part : op.parts)
    if (is_product(part.kind) && part.reads[0] == from) read_quantized(part, from, to, activations);
  op.reads[0] = to;
  op.activations = activations;
}

}  // namespace

Plan lower_activations(Plan plan, const Weights& weights, Activations activations) {
  if (activations == Activations::f32) return plan;

  std::map<BufferId, Activations> wanted;  // float buffer → most exact form that any product of it needs
  std::vector<Activations> of_op(plan.ops.size(), Activations::f32);
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (!is_product(op.kind) || !all_quantized(op, weights)) continue;
    const Buffer& in = plan.buffers[op.reads[0]];
    if (in.width % kQuantGroup != 0) continue;
    of_op[i] = steers(op.weights[0].role) ? Activations::int16 : activations;
    Activations& w = wanted.emplace(op.reads[0], of_op[i]).first->second;
    w = std::max(w, of_op[i]);
  }

  std::map<BufferId, BufferId> quantized;
  Plan out = std::move(plan);
  std::vector<Op> ops;
  for (std::size_t i = 0; i < out.ops.size(); ++i) {
    Op op = out.ops[i];
    if (of_op[i] != Activations::f32) {
      const BufferId from = op.reads[0];
      if (!quantized.count(from)) {
        const Activations form = wanted[from];
        Buffer q = out.buffers[from];
        q.name += ".q";
        q.dtype = DType::u8;
        q.width = QuantLayout{int(q.width), form == Activations::int16 ? 2 : 1}.row_bytes();
        out.buffers.push_back(q);
        const BufferId to = BufferId(out.buffers.size()) - 1;
        quantized[from] = to;
        ops.push_back(Op{.kind = OpKind::quantize_rows, .name = q.name, .layer = op.layer, .reads = {from}, .writes = {to},
                         .activations = form});
      }
      read_quantized(op, from, quantized[from], of_op[i]);
    }
    ops.push_back(std::move(op));
  }
  out.ops = std::move(ops);
  return out;
}

}  // namespace lily::plan
