// The weights of a model as views into the mapped checkpoint. Nothing is copied but the small vectors (norms,
// convolution, gate constants), which are widened to float32 once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "model/shape.h"

namespace lily {

/// What a tensor is for. One row of model/tensor_table per role.
enum class Role {
  embed_tokens, lm_head, final_norm,
  input_norm, post_norm,
  // Gated DeltaNet
  in_proj_qkv, in_proj_z, in_proj_b, in_proj_a, gdn_out_proj, conv1d, a_log, dt_bias, gdn_norm,
  // full attention
  q_proj, k_proj, v_proj, o_proj, q_norm, k_norm,
  // mixture of experts
  router, shared_expert_gate, expert_gate_proj, expert_up_proj, expert_down_proj,
  shared_gate_proj, shared_up_proj, shared_down_proj,
  count_,
};
const char* role_name(Role role);  // "in_proj_qkv", …: the word used in op names and reports

struct TensorId {
  Role role;
  int layer = -1;  // -1: not of a layer
};

/// A stack of `count` matrices [rows (out), cols (in)], row-major, as the checkpoint stores them.
///
/// Quantised (bits 2, 3, 4, 5, 6 or 8): W[r][c] = scale[r][c / group] * code[r][c] + bias[r][c / group]; the codes of a row
/// are one little-endian bit string, low bits first, row_bytes long. Plain (bits 16 or 32): `plain` says which type,
/// scales and biases are null. A vector is a plain float32 matrix of one row.
/// Lifetime: the views live as long as the Weights that handed them out.
struct Matrix {
  std::int64_t count = 1, rows = 0, cols = 0;
  int bits = 0;   // per weight as stored
  int group = 0;  // columns that share a scale; 0 when plain
  DType plain = DType::f32;
  DType scale_type = DType::bf16;
  const std::byte* data = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* biases = nullptr;
  std::int64_t row_bytes = 0;          // between rows of `data`
  std::int64_t scale_row_bytes = 0;    // between rows of `scales` and of `biases`
  std::int64_t stack_bytes = 0;        // between matrices of the stack in `data`
  std::int64_t scale_stack_bytes = 0;  // … in `scales` and `biases`

  bool quantized() const { return group != 0; }
  Matrix at(std::int64_t i) const {  // matrix i of the stack
    Matrix m = *this;
    m.count = 1;
    m.data += i * stack_bytes;
    if (quantized()) {
      m.scales += i * scale_stack_bytes;
      m.biases += i * scale_stack_bytes;
    }
    return m;
  }
  const float* vector() const { return reinterpret_cast<const float*>(data); }  // only for plain float32
  /// Bytes that reading one matrix of the stack moves: codes, scales and biases.
  std::int64_t bytes_one() const { return rows * (row_bytes + 2 * (quantized() ? scale_row_bytes : 0)); }
  std::int64_t bytes() const { return count * bytes_one(); }
};

/// Row `row` of `m` as float32 into out[cols]: scale * code + bias in float32 (the definition every kernel is held to).
void dequantize_row(const Matrix& m, std::int64_t row, float* out);

/// Every tensor of a model, by role and layer. Owns the mapping and the widened vectors.
class Weights {
 public:
  Weights() = default;
  explicit Weights(ModelShape shape);
  const ModelShape& shape() const { return shape_; }
  const Matrix& get(TensorId id) const;  // Error(internal) when the model has no such tensor
  bool has(TensorId id) const;
  void set(TensorId id, Matrix m);
  /// Hands over something the views point into (a mapped shard, a widened vector).
  void keep(std::shared_ptr<const void> owner) { owners_.push_back(std::move(owner)); }
  std::int64_t bytes() const;  // of all tensors

 private:
  ModelShape shape_;
  std::vector<Matrix> tensors_;  // [layer + 1][role]
  std::vector<std::shared_ptr<const void>> owners_;
};

}  // namespace lily
