#include "plan/op.h"

namespace lily::plan {

const char* op_name(OpKind kind) {
  switch (kind) {
    case OpKind::embed: return "embed";
    case OpKind::rms_norm: return "rms_norm";
    case OpKind::quantize_rows: return "quantize_rows";
    case OpKind::linear: return "linear";
    case OpKind::conv1d_silu: return "conv1d_silu";
    case OpKind::gdn_gates: return "gdn_gates";
    case OpKind::qk_l2norm: return "qk_l2norm";
    case OpKind::gdn_scan: return "gdn_scan";
    case OpKind::gated_rms_norm: return "gated_rms_norm";
    case OpKind::qk_norm_rope: return "qk_norm_rope";
    case OpKind::kv_append: return "kv_append";
    case OpKind::attention: return "attention";
    case OpKind::sigmoid_gate: return "sigmoid_gate";
    case OpKind::router_topk: return "router_topk";
    case OpKind::expert_sort: return "expert_sort";
    case OpKind::expert_linear: return "expert_linear";
    case OpKind::silu_mul: return "silu_mul";
    case OpKind::moe_combine: return "moe_combine";
    case OpKind::add: return "add";
    case OpKind::gather_rows: return "gather_rows";
    case OpKind::expert_in: return "expert_in";
    case OpKind::expert_out: return "expert_out";
    case OpKind::linear_add: return "linear_add";
    case OpKind::count_: break;
  }
  return "?";
}

BufferId Plan::buffer(const std::string& name) const {
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i].name == name) return BufferId(i);
  return -1;
}

}  // namespace lily::plan
