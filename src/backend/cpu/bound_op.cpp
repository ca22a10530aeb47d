#include "backend/cpu/bound_op.h"

#include <cstring>
#include <string>
#include <type_traits>

#include "base/error.h"

namespace lily {
namespace {

using namespace ops;
using K = plan::OpKind;

template <class Args>
void tie(const CpuKernel<Args>& kernel, const Args& args, BoundOp& out) {
  static_assert(sizeof(Args) <= BoundOp::kArgsBytes && std::is_trivially_copyable_v<Args>);
  std::memcpy(out.args, &args, sizeof(Args));
  out.units = kernel.units(args);
  out.kernel = reinterpret_cast<void (*)()>(kernel.run);
  out.call = [](const BoundOp& b, std::int64_t begin, std::int64_t end, CpuScratch& scratch) {
    reinterpret_cast<void (*)(const Args&, std::int64_t, std::int64_t, CpuScratch&)>(b.kernel)(
        *reinterpret_cast<const Args*>(b.args), begin, end, scratch);
  };
}

AttentionArgs bind_attention_in(const plan::Op& op, const Pass& pass, const AttentionRoom& room) {
  AttentionArgs a = bind_attention(op, pass);
  a.partial = pass.techniques.fixed_block_attention ? room.partial : nullptr;
  a.finished = room.finished;
  return a;
}

}  // namespace

std::int64_t attention_room_floats(const ModelShape& shape, std::span<const SegmentRows> segments) {
  return attention_partial_floats({.segments = segments,
                                   .rows = int(segments.size()),  // decode: a row of each
                                   .heads = shape.attn_heads,
                                   .kv_heads = shape.kv_heads,
                                   .head_dim = shape.head_dim});
}

void bind_op(const CpuKernels& k, const plan::Op& op, const Pass& pass, const AttentionRoom& room, BoundOp& out) {
  switch (op.kind) {
    case K::embed: return tie(k.embed, bind_embed(op, pass), out);
    case K::rms_norm: return tie(k.rms_norm, bind_rms_norm(op, pass), out);
    case K::quantize_rows: return tie(k.quantize_rows, bind_quantize_rows(op, pass), out);
    case K::linear:
    case K::linear_add: return tie(k.linear, bind_linear(op, pass), out);
    case K::conv1d_silu: return tie(k.conv1d_silu, bind_conv1d_silu(op, pass), out);
    case K::gdn_gates: return tie(k.gdn_gates, bind_gdn_gates(op, pass), out);
    case K::qk_l2norm: return tie(k.qk_l2norm, bind_qk_l2norm(op, pass), out);
    case K::gdn_scan: return tie(k.gdn_scan, bind_gdn_scan(op, pass), out);
    case K::gated_rms_norm: return tie(k.gated_rms_norm, bind_gated_rms_norm(op, pass), out);
    case K::qk_norm_rope: return tie(k.qk_norm_rope, bind_qk_norm_rope(op, pass), out);
    case K::kv_append: return tie(k.kv_append, bind_kv_append(op, pass), out);
    case K::attention: return tie(k.attention, bind_attention_in(op, pass, room), out);
    case K::sigmoid_gate: return tie(k.sigmoid_gate, bind_sigmoid_gate(op, pass), out);
    case K::router_topk: return tie(k.router_topk, bind_router_topk(op, pass), out);
    case K::expert_sort: return tie(k.expert_sort, bind_expert_sort(op, pass), out);
    case K::expert_linear: return tie(k.expert_linear, bind_expert_linear(op, pass), out);
    case K::expert_in: return tie(k.expert_in, bind_expert_in(op, pass), out);
    case K::expert_out: return tie(k.expert_out, bind_expert_out(op, pass), out);
    case K::silu_mul: return tie(k.silu_mul, bind_silu_mul(op, pass), out);
    case K::moe_combine: return tie(k.moe_combine, bind_moe_combine(op, pass), out);
    case K::add: return tie(k.add, bind_add(op, pass), out);
    case K::gather_rows: return tie(k.gather_rows, bind_gather_rows(op, pass), out);
    case K::count_: break;
  }
  throw Error(ErrorCode::internal, std::string("no CPU kernel for op kind ") + plan::op_name(op.kind));
}

}  // namespace lily
