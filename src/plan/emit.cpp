#include "plan/emit.h"

#include <utility>

namespace lily::plan {
namespace {

// Adds ops one after another; `layer` names what it adds.
class Builder {
 public:
  Builder(const ModelShape& shape, Phase phase) : s_(shape) { plan_.phase = phase; }

  Plan model() {
    plan_.ids = add_buffer({.name = "ids", .space = Space::input, .dtype = DType::i32, .width = 1});
    plan_.residual = rows("x", s_.hidden);
    op(OpKind::embed, "embed", {plan_.ids}, {plan_.residual}, {Role::embed_tokens});
    for (layer_ = 0; layer_ < s_.layers; ++layer_) layer(plan_.residual);
    layer_ = -1;
    head(plan_.residual);
    return std::move(plan_);
  }

 private:
  void layer(BufferId x) {
    const BufferId xn = rms_norm("xn", x, Role::input_norm);
    const BufferId mixed = s_.layer_kinds[layer_] == LayerKind::gated_deltanet ? gated_deltanet(xn) : full_attention(xn);
    op(OpKind::add, "mixer_add", {mixed, x}, {x});
    const BufferId hn = rms_norm("hn", x, Role::post_norm);
    mixture_of_experts(hn, x);
    plan_.ops.back().ends_layer = true;
  }

  BufferId gated_deltanet(BufferId x) {
    const BufferId window = state("window", s_.conv_channels() * (s_.conv_kernel - 1));
    const BufferId recurrent = state("recurrent", s_.value_width() * s_.gdn_key_dim);
    const BufferId qkv = linear("qkv", x, Role::in_proj_qkv, s_.conv_channels());
    const BufferId z = linear("z", x, Role::in_proj_z, s_.value_width());
    const BufferId b = linear("b", x, Role::in_proj_b, s_.gdn_value_heads);
    const BufferId a = linear("a", x, Role::in_proj_a, s_.gdn_value_heads);
    const BufferId mixed = rows("conv", s_.conv_channels());
    op(OpKind::conv1d_silu, "conv1d_silu", {qkv, window}, {mixed, window}, {Role::conv1d});
    const BufferId g = rows("g", s_.gdn_value_heads), beta = rows("beta", s_.gdn_value_heads);
    op(OpKind::gdn_gates, "gdn_gates", {a, b}, {g, beta}, {Role::a_log, Role::dt_bias});
    op(OpKind::qk_l2norm, "qk_l2norm", {mixed}, {mixed});
    const BufferId o = rows("o", s_.value_width());
    op(OpKind::gdn_scan, "gdn_scan", {mixed, g, beta, recurrent}, {o, recurrent});
    const BufferId y = rows("y", s_.value_width());
    op(OpKind::gated_rms_norm, "gated_rms_norm", {o, z}, {y}, {Role::gdn_norm});
    return linear("out", y, Role::gdn_out_proj, s_.hidden);
  }

  BufferId full_attention(BufferId x) {
    const BufferId kv = state("kv", 2 * s_.kv_width());
    const BufferId qg = linear("qg", x, Role::q_proj, 2 * s_.attn_width());
    const BufferId k = linear("k", x, Role::k_proj, s_.kv_width());
    const BufferId v = linear("v", x, Role::v_proj, s_.kv_width());
    const BufferId q = rows("q", s_.attn_width()), gate = rows("gate", s_.attn_width());
    op(OpKind::qk_norm_rope, "qk_norm_rope", {qg, k}, {q, gate, k}, {Role::q_norm, Role::k_norm});
    op(OpKind::kv_append, "kv_append", {k, v}, {kv});
    const BufferId o = rows("o", s_.attn_width());
    op(OpKind::attention, "attention", {q, kv}, {o});
    const BufferId y = rows("y", s_.attn_width());
    op(OpKind::sigmoid_gate, "sigmoid_gate", {o, gate}, {y});
    return linear("out", y, Role::o_proj, s_.hidden);
  }

  // x is the residual stream, hn its norm.
  void mixture_of_experts(BufferId hn, BufferId x) {
    const int k = s_.experts_per_token;
    const BufferId logits = linear("router_logits", hn, Role::router, s_.experts);
    const BufferId expert = rows("expert", k, DType::i32), weight = rows("expert_weight", k);
    op(OpKind::router_topk, "router_topk", {logits}, {expert, weight});
    const BufferId groups = add_buffer({.name = label("groups"), .dtype = DType::i32, .width = 1, .rows_per_token = k,
                                        .extra = s_.experts + 1});
    op(OpKind::expert_sort, "expert_sort", {expert}, {groups});
    const BufferId gate = expert_linear("expert_gate", hn, groups, Role::expert_gate_proj, s_.expert_ffn);
    const BufferId up = expert_linear("expert_up", hn, groups, Role::expert_up_proj, s_.expert_ffn);
    const BufferId h = rows("expert_h", s_.expert_ffn, DType::f32, k);
    op(OpKind::silu_mul, "expert_silu_mul", {gate, up}, {h});
    const BufferId shared_gate = linear("shared_gate", hn, Role::shared_expert_gate, 1);
    const BufferId sg = linear("shared_gate_proj", hn, Role::shared_gate_proj, s_.shared_ffn);
    const BufferId su = linear("shared_up_proj", hn, Role::shared_up_proj, s_.shared_ffn);
    const BufferId sh = rows("shared_h", s_.shared_ffn);
    op(OpKind::silu_mul, "shared_silu_mul", {sg, su}, {sh});
    const BufferId shared = linear("shared", sh, Role::shared_down_proj, s_.hidden);
    const BufferId d = expert_linear("expert_down", h, groups, Role::expert_down_proj, s_.hidden);
    op(OpKind::moe_combine, "moe_combine", {d, weight, shared, shared_gate, x}, {x});
  }

  void head(BufferId x) {
    const BufferId wanted = rows("x_out", s_.hidden);
    plan_.buffers[wanted].rows = RowSet::output;
    op(OpKind::gather_rows, "gather_rows", {x}, {wanted});
    const BufferId xf = rows("xf", s_.hidden);
    plan_.buffers[xf].rows = RowSet::output;
    op(OpKind::rms_norm, "final_norm", {wanted}, {xf}, {Role::final_norm});
    plan_.logits = add_buffer({.name = "logits", .space = Space::output, .rows = RowSet::output, .width = s_.vocab});
    op(OpKind::linear, "lm_head", {xf}, {plan_.logits}, {Role::lm_head});
  }

  BufferId rms_norm(const char* name, BufferId x, Role weight) {
    const BufferId y = rows(name, s_.hidden);
    op(OpKind::rms_norm, role_name(weight), {x}, {y}, {weight});
    return y;
  }
  BufferId linear(const char* out, BufferId x, Role weight, int width) {
    const BufferId y = rows(out, width);
    op(OpKind::linear, role_name(weight), {x}, {y}, {weight});
    return y;
  }
  BufferId expert_linear(const char* out, BufferId x, BufferId groups, Role weight, int width) {
    const BufferId y = rows(out, width, DType::f32, s_.experts_per_token);
    op(OpKind::expert_linear, role_name(weight), {x, groups}, {y}, {weight});
    return y;
  }

  void op(OpKind kind, const char* name, std::vector<BufferId> reads, std::vector<BufferId> writes,
          std::vector<Role> weights = {}) {
    Op o{.kind = kind, .name = label(name), .layer = layer_, .reads = std::move(reads), .writes = std::move(writes)};
    for (Role role : weights) o.weights.push_back({role, layer_});
    plan_.ops.push_back(std::move(o));
  }
  BufferId rows(const char* name, std::int64_t width, DType type = DType::f32, int rows_per_token = 1) {
    return add_buffer({.name = label(name), .dtype = type, .width = width, .rows_per_token = rows_per_token});
  }
  BufferId state(const char* name, std::int64_t width) {
    return add_buffer({.name = label(name), .space = Space::state, .width = width, .layer = layer_});
  }
  BufferId add_buffer(Buffer b) {
    plan_.buffers.push_back(std::move(b));
    return BufferId(plan_.buffers.size()) - 1;
  }
  std::string label(const char* name) const {
    return layer_ < 0 ? std::string(name) : "L" + std::to_string(layer_) + "." + name;
  }

  const ModelShape& s_;
  Plan plan_;
  int layer_ = -1;
};

}  // namespace

Plan emit(const ModelShape& shape, Phase phase) { return Builder(shape, phase).model(); }

}  // namespace lily::plan
