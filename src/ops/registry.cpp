#include "ops/registry.h"

#include "base/error.h"
#include "ops/cpu_kernels.h"

namespace lily::ops {
namespace {

template <auto Bind, auto Ref>
void run(const plan::Op& op, const Pass& pass) {
  Ref(Bind(op, pass));
}

using K = plan::OpKind;
constexpr OpRow kRows[] = {
    {K::embed, run<bind_embed, embed_ref>},
    {K::rms_norm, run<bind_rms_norm, rms_norm_ref>, 8, 1},
    {K::quantize_rows, run<bind_quantize_rows, quantize_rows_ref>},
    {K::linear, run<bind_linear, linear_ref>, 8, 4},
    {K::conv1d_silu, run<bind_conv1d_silu, conv1d_silu_ref>, 16, 0},
    {K::gdn_gates, run<bind_gdn_gates, gdn_gates_ref>, 16, 0},
    {K::qk_l2norm, run<bind_qk_l2norm, qk_l2norm_ref>, 8, 1},
    {K::gdn_scan, run<bind_gdn_scan, gdn_scan_ref>, 32, 4},
    {K::gated_rms_norm, run<bind_gated_rms_norm, gated_rms_norm_ref>, 24, 1},
    {K::qk_norm_rope, run<bind_qk_norm_rope, qk_norm_rope_ref>, 16, 1},
    {K::kv_append, run<bind_kv_append, kv_append_ref>},
    {K::attention, run<bind_attention, attention_ref>, 32, 4, 8192},
    {K::sigmoid_gate, run<bind_sigmoid_gate, sigmoid_gate_ref>, 16, 0},
    {K::router_topk, run<bind_router_topk, router_topk_ref>, 16, 0},
    {K::expert_sort, run<bind_expert_sort, expert_sort_ref>},
    {K::expert_linear, run<bind_expert_linear, expert_linear_ref>, 8, 4},
    {K::silu_mul, run<bind_silu_mul, silu_mul_ref>, 16, 0},
    {K::moe_combine, run<bind_moe_combine, moe_combine_ref>, 16, 0},
    {K::add, run<bind_add, add_ref>},
    {K::gather_rows, run<bind_gather_rows, gather_rows_ref>},
    {K::expert_in, nullptr, 32, 8},
    {K::expert_out, nullptr, 32, 8},
    {K::linear_add, nullptr, 8, 4},
};

}  // namespace

const OpRow& op_row(plan::OpKind kind) {
  for (const OpRow& row : kRows)
    if (row.kind == kind) return row;
  throw Error(ErrorCode::internal, std::string("no registry row for op kind ") + plan::op_name(kind));
}

void run_reference(const plan::Op& op, const Pass& pass) {
  if (!op.parts.empty()) {
    for (const plan::Op& part : op.parts) run_reference(part, pass);
    return;
  }
  const OpRow& row = op_row(op.kind);
  if (!row.run_ref) throw Error(ErrorCode::internal, "op " + op.name + " has neither a reference form nor parts");
  row.run_ref(op, pass);
}

}  // namespace lily::ops
