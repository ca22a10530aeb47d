// The one table of the model's tensors: role → name in the checkpoint, shape, where it occurs, how it may be stored.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/shape.h"
#include "model/weights.h"

namespace lily {

enum class Scope { model, every_layer, gdn_layer, attention_layer };

enum class Kind {
  matrix,  // NAME.weight: quantised (with NAME.scales, NAME.biases), or plain bf16, f16, f32. [rows, cols]
  stack,   // the same with a leading expert dimension: [count, rows, cols]
  norm,    // NAME.weight, a vector; raw checkpoints store w - 1
  vector,  // NAME.weight, a vector stored as it is
  bare,    // NAME itself, a vector
  conv,    // NAME.weight: [channels, kernel, 1] converted, [channels, 1, kernel] raw; the bytes lie in the same order
};

struct Dims {
  std::int64_t count, rows, cols;
};

struct TensorRow {
  Role role;
  Scope scope;
  Kind kind;
  const char* name;  // without prefix and, in a layer, without "layers.N."
  Dims (*dims)(const ModelShape&);
};
std::span<const TensorRow> tensor_table();
const TensorRow& tensor_row(Role role);

/// Whether layer `layer` has a tensor of this scope (layer -1 stands for the model).
bool in_scope(Scope scope, const ModelShape& shape, int layer);
/// "layers.3.mlp.gate", or the name itself outside a layer.
std::string module_name(const TensorRow& row, int layer);
/// "weight" is part of the name of everything but A_log and dt_bias.
std::string tensor_name(const TensorRow& row, int layer);

/// Every (row, layer) that a model of this shape has, in the order of the walk through the model. lm_head of a tied
/// model is left out.
struct TableEntry {
  const TensorRow* row;
  int layer;
};
std::vector<TableEntry> expand_table(const ModelShape& shape);

/// Raw checkpoints keep the experts in two tensors instead of three: gate and up rows of an expert lie one after the
/// other.
inline constexpr const char* kRawGateUp = "mlp.experts.gate_up_proj";  // [experts, 2 * ffn, hidden], gate rows first
inline constexpr const char* kRawDown = "mlp.experts.down_proj";       // [experts, hidden, ffn]

}  // namespace lily
