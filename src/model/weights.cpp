#include "model/weights.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"
#include "base/half.h"

namespace lily {
namespace {

constexpr const char* kRoleNames[] = {
    "embed_tokens",     "lm_head",
    "final_norm",       "input_norm",
    "post_norm",        "in_proj_qkv",
    "in_proj_z",        "in_proj_b",
    "in_proj_a",        "gdn_out_proj",
    "conv1d",           "a_log",
    "dt_bias",          "gdn_norm",
    "q_proj",           "k_proj",
    "v_proj",           "o_proj",
    "q_norm",           "k_norm",
    "router",           "shared_expert_gate",
    "expert_gate_proj", "expert_up_proj",
    "expert_down_proj", "shared_gate_proj",
    "shared_up_proj",   "shared_down_proj",
};
static_assert(std::size(kRoleNames) == std::size_t(Role::count_));

float read_plain(const std::byte* at, DType type, std::int64_t index) {
  if (type == DType::f32) {
    float value;
    std::memcpy(&value, at + 4 * index, 4);
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, at + 2 * index, 2);
  return type == DType::bf16 ? bf16_to_float(half) : f16_to_float(half);
}

/// Code `index` of a little-endian bit string. `row_bytes` bounds the read: a code may straddle two bytes.
std::uint32_t read_code(const std::byte* row, std::int64_t row_bytes, std::int64_t index, int bits) {
  const std::int64_t bit = index * bits;
  const std::int64_t byte = bit / 8;
  std::uint32_t two = std::uint32_t(row[byte]);
  if (byte + 1 < row_bytes) two |= std::uint32_t(row[byte + 1]) << 8;
  return (two >> (bit % 8)) & ((1u << bits) - 1u);
}

}  // namespace

const char* role_name(Role role) {
  return role < Role::count_ ? kRoleNames[std::size_t(role)] : "?";
}

void dequantize_row(const Matrix& m, std::int64_t row, float* out) {
  if (row < 0 || row >= m.rows)
    throw Error(ErrorCode::internal, fmt::format("dequantize_row: row {} of a matrix with {}", row, m.rows));
  const std::byte* data = m.data + row * m.row_bytes;
  if (!m.quantized()) {
    for (std::int64_t c = 0; c < m.cols; ++c) out[c] = read_plain(data, m.plain, c);
    return;
  }
  const std::byte* scales = m.scales + row * m.scale_row_bytes;
  const std::byte* biases = m.biases + row * m.scale_row_bytes;
  for (std::int64_t c = 0; c < m.cols; c += m.group) {
    const float scale = read_plain(scales, m.scale_type, c / m.group);
    const float bias = read_plain(biases, m.scale_type, c / m.group);
    if (m.bits == 4) {  // by far the most common, and the reference back end lives on it
      for (std::int64_t i = 0; i < m.group; i += 2) {
        const auto pair = std::uint8_t(data[(c + i) / 2]);
        out[c + i] = scale * float(pair & 15) + bias;
        out[c + i + 1] = scale * float(pair >> 4) + bias;
      }
    } else {
      for (std::int64_t i = 0; i < m.group; ++i) out[c + i] = scale * float(read_code(data, m.row_bytes, c + i, m.bits)) + bias;
    }
  }
}

Weights::Weights(ModelShape shape)
    : shape_(std::move(shape)), tensors_(std::size_t(shape_.layers + 1) * std::size_t(Role::count_)) {}

namespace {
std::size_t slot(TensorId id) {
  return std::size_t(id.layer + 1) * std::size_t(Role::count_) + std::size_t(id.role);
}
}  // namespace

bool Weights::has(TensorId id) const {
  return id.layer >= -1 && id.role < Role::count_ && slot(id) < tensors_.size() && tensors_[slot(id)].data;
}

const Matrix& Weights::get(TensorId id) const {
  if (!has(id))
    throw Error(ErrorCode::internal,
                fmt::format("the model has no tensor {} in layer {}", role_name(id.role), id.layer));
  return tensors_[slot(id)];
}

void Weights::set(TensorId id, Matrix m) {
  if (id.layer < -1 || id.layer >= shape_.layers || id.role >= Role::count_)
    throw Error(ErrorCode::internal, fmt::format("no place for tensor {} in layer {}", role_name(id.role), id.layer));
  tensors_[slot(id)] = m;
}

std::int64_t Weights::bytes() const {
  std::int64_t total = 0;
  for (const Matrix& m : tensors_)
    if (m.data) total += m.bytes();
  // A tied lm_head is the embedding once more, not a second copy.
  const TensorId head{Role::lm_head}, embed{Role::embed_tokens};
  if (has(head) && has(embed) && get(head).data == get(embed).data) total -= get(head).bytes();
  return total;
}

}  // namespace lily
