#include "model/tensor_table.h"

#include <fmt/format.h>

#include "base/error.h"

namespace lily {
namespace {

using S = ModelShape;

// clang-format off
constexpr TensorRow kTable[] = {
    {Role::embed_tokens, Scope::model, Kind::matrix, "embed_tokens", [](const S& s) { return Dims{1, s.vocab, s.hidden}; }},

    {Role::input_norm, Scope::every_layer, Kind::norm, "input_layernorm", [](const S& s) { return Dims{1, 1, s.hidden}; }},

    {Role::in_proj_qkv, Scope::gdn_layer, Kind::matrix, "linear_attn.in_proj_qkv", [](const S& s) { return Dims{1, s.conv_channels(), s.hidden}; }},
    {Role::in_proj_z, Scope::gdn_layer, Kind::matrix, "linear_attn.in_proj_z", [](const S& s) { return Dims{1, s.value_width(), s.hidden}; }},
    {Role::in_proj_b, Scope::gdn_layer, Kind::matrix, "linear_attn.in_proj_b", [](const S& s) { return Dims{1, s.gdn_value_heads, s.hidden}; }},
    {Role::in_proj_a, Scope::gdn_layer, Kind::matrix, "linear_attn.in_proj_a", [](const S& s) { return Dims{1, s.gdn_value_heads, s.hidden}; }},
    {Role::conv1d, Scope::gdn_layer, Kind::conv, "linear_attn.conv1d", [](const S& s) { return Dims{1, s.conv_channels(), s.conv_kernel}; }},
    {Role::a_log, Scope::gdn_layer, Kind::bare, "linear_attn.A_log", [](const S& s) { return Dims{1, 1, s.gdn_value_heads}; }},
    {Role::dt_bias, Scope::gdn_layer, Kind::bare, "linear_attn.dt_bias", [](const S& s) { return Dims{1, 1, s.gdn_value_heads}; }},
    {Role::gdn_norm, Scope::gdn_layer, Kind::vector, "linear_attn.norm", [](const S& s) { return Dims{1, 1, s.gdn_value_dim}; }},
    {Role::gdn_out_proj, Scope::gdn_layer, Kind::matrix, "linear_attn.out_proj", [](const S& s) { return Dims{1, s.hidden, s.value_width()}; }},

    // q_proj holds query and gate of each head, one after the other.
    {Role::q_proj, Scope::attention_layer, Kind::matrix, "self_attn.q_proj", [](const S& s) { return Dims{1, 2 * s.attn_width(), s.hidden}; }},
    {Role::k_proj, Scope::attention_layer, Kind::matrix, "self_attn.k_proj", [](const S& s) { return Dims{1, s.kv_width(), s.hidden}; }},
    {Role::v_proj, Scope::attention_layer, Kind::matrix, "self_attn.v_proj", [](const S& s) { return Dims{1, s.kv_width(), s.hidden}; }},
    {Role::q_norm, Scope::attention_layer, Kind::norm, "self_attn.q_norm", [](const S& s) { return Dims{1, 1, s.head_dim}; }},
    {Role::k_norm, Scope::attention_layer, Kind::norm, "self_attn.k_norm", [](const S& s) { return Dims{1, 1, s.head_dim}; }},
    {Role::o_proj, Scope::attention_layer, Kind::matrix, "self_attn.o_proj", [](const S& s) { return Dims{1, s.hidden, s.attn_width()}; }},

    {Role::post_norm, Scope::every_layer, Kind::norm, "post_attention_layernorm", [](const S& s) { return Dims{1, 1, s.hidden}; }},

    {Role::router, Scope::every_layer, Kind::matrix, "mlp.gate", [](const S& s) { return Dims{1, s.experts, s.hidden}; }},
    {Role::shared_expert_gate, Scope::every_layer, Kind::matrix, "mlp.shared_expert_gate", [](const S& s) { return Dims{1, 1, s.hidden}; }},
    {Role::expert_gate_proj, Scope::every_layer, Kind::stack, "mlp.switch_mlp.gate_proj", [](const S& s) { return Dims{s.experts, s.expert_ffn, s.hidden}; }},
    {Role::expert_up_proj, Scope::every_layer, Kind::stack, "mlp.switch_mlp.up_proj", [](const S& s) { return Dims{s.experts, s.expert_ffn, s.hidden}; }},
    {Role::expert_down_proj, Scope::every_layer, Kind::stack, "mlp.switch_mlp.down_proj", [](const S& s) { return Dims{s.experts, s.hidden, s.expert_ffn}; }},
    {Role::shared_gate_proj, Scope::every_layer, Kind::matrix, "mlp.shared_expert.gate_proj", [](const S& s) { return Dims{1, s.shared_ffn, s.hidden}; }},
    {Role::shared_up_proj, Scope::every_layer, Kind::matrix, "mlp.shared_expert.up_proj", [](const S& s) { return Dims{1, s.shared_ffn, s.hidden}; }},
    {Role::shared_down_proj, Scope::every_layer, Kind::matrix, "mlp.shared_expert.down_proj", [](const S& s) { return Dims{1, s.hidden, s.shared_ffn}; }},

    {Role::final_norm, Scope::model, Kind::norm, "norm", [](const S& s) { return Dims{1, 1, s.hidden}; }},
    {Role::lm_head, Scope::model, Kind::matrix, "lm_head", [](const S& s) { return Dims{1, s.vocab, s.hidden}; }},
};
// clang-format on
static_assert(std::size(kTable) == std::size_t(Role::count_), "a row for every role");

}  // namespace

std::span<const TensorRow> tensor_table() {
  return kTable;
}

const TensorRow& tensor_row(Role role) {
  for (const TensorRow& row : kTable)
    if (row.role == role) return row;
  throw Error(ErrorCode::internal, fmt::format("no row for role {}", int(role)));
}

bool in_scope(Scope scope, const ModelShape& shape, int layer) {
  if (layer < 0) return scope == Scope::model;
  const LayerKind kind = shape.layer_kinds[std::size_t(layer)];
  switch (scope) {
    case Scope::model:
      return false;
    case Scope::every_layer:
      return true;
    case Scope::gdn_layer:
      return kind == LayerKind::gated_deltanet;
    case Scope::attention_layer:
      return kind == LayerKind::full_attention;
  }
  return false;
}

std::string module_name(const TensorRow& row, int layer) {
  return row.scope == Scope::model ? row.name : fmt::format("layers.{}.{}", layer, row.name);
}

std::string tensor_name(const TensorRow& row, int layer) {
  return module_name(row, layer) + (row.kind == Kind::bare ? "" : ".weight");
}

std::vector<TableEntry> expand_table(const ModelShape& shape) {
  std::vector<TableEntry> out;
  for (const TensorRow& row : kTable)
    if (row.role == Role::embed_tokens) out.push_back({&row, -1});
  for (int layer = 0; layer < shape.layers; ++layer)
    for (const TensorRow& row : kTable)
      if (in_scope(row.scope, shape, layer)) out.push_back({&row, layer});
  for (const TensorRow& row : kTable)
    if (row.role == Role::final_norm || (row.role == Role::lm_head && !shape.tied_embeddings))
      out.push_back({&row, -1});
  return out;
}

}  // namespace lily
