#include "model/synthetic.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/half.h"
#include "model/tensor_table.h"

namespace lily {
namespace {

struct Range {
  double low, high;
};

Range plain_range(Role role) {
  switch (role) {
    case Role::conv1d:
      return {-0.6, 0.6};
    case Role::a_log:
      return {-3, 1.5};
    case Role::dt_bias:
      return {-4, 0};
    case Role::gdn_norm:
    case Role::q_norm:
    case Role::k_norm:
      return {0.8, 1.2};
    default:
      return {0.9, 1.1};
  }
}

/// The gain keeps activations of a sensible size: the rows of embed_tokens leave as unit variance, and so on.
double gain_of(Role role, double hidden) {
  switch (role) {
    case Role::embed_tokens:
      return std::sqrt(hidden);
    case Role::lm_head:
      return 3;
    case Role::router:
    case Role::shared_expert_gate:
      return 2;
    default:
      return 1;
  }
}

std::string file_prefix(Role role) {
  return role == Role::lm_head ? "language_model." : "language_model.model.";
}

/// 24 random bits as a float in [0, 1): exact.
float unit(std::uint64_t key, std::int64_t index) {
  return float(synthetic_hash(key, std::uint64_t(index)) >> 40) * 0x1p-24f;
}

std::uint16_t scale_bits(const SyntheticTensor& t, std::int64_t index) {
  return float_to_bf16(t.scale * (0.75f + 0.5f * unit(t.key ^ 1, index)));
}

template <typename T, typename F>
void fill(std::int64_t begin, std::int64_t end, std::byte* out, F value) {
  for (std::int64_t i = begin; i < end; ++i) {
    const T v = value(i);
    std::memcpy(out + (i - begin) * std::int64_t(sizeof(T)), &v, sizeof(T));
  }
}

SyntheticTensor plain_tensor(const TableEntry& entry, const Dims& dims) {
  const Range range = plain_range(entry.row->role);
  SyntheticTensor t;
  t.name = file_prefix(entry.row->role) + tensor_name(*entry.row, entry.layer);
  t.dtype = entry.row->role == Role::a_log ? DType::f32 : DType::bf16;
  t.shape = entry.row->kind == Kind::conv ? std::vector<std::int64_t>{dims.rows, dims.cols, 1}
                                          : std::vector<std::int64_t>{dims.cols};
  t.values = SyntheticTensor::Values::plain;
  t.key = fnv1a64(t.name);
  t.low = float(range.low);
  t.width = float(range.high - range.low);
  return t;
}

void append_quantized(std::vector<SyntheticTensor>& out, const TableEntry& entry, const Dims& dims,
                      const ModelConfig& config) {
  const std::string module = module_name(*entry.row, entry.layer);
  const QuantSetting setting = config.quantization.of(module);
  if (setting.bits == 0)
    throw Error(ErrorCode::unsupported,
                fmt::format("{}: quantization: expected bits and group_size of every matrix, for a synthetic checkpoint "
                            "has only quantised ones; found none of {}",
                            config.file, module));
  if (dims.cols % setting.group)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: quantization: the {} columns of {} cannot be cut into groups of {}", config.file,
                            dims.cols, module, setting.group));
  SyntheticTensor t;
  const std::string name = file_prefix(entry.row->role) + module;
  t.key = fnv1a64(name);
  t.shape = entry.row->kind == Kind::stack
                ? std::vector<std::int64_t>{dims.count, dims.rows, dims.cols * setting.bits / 32}
                : std::vector<std::int64_t>{dims.rows, dims.cols * setting.bits / 32};
  const double std_of_codes = std::sqrt((std::pow(4.0, setting.bits) - 1) / 12);
  t.scale = float(gain_of(entry.row->role, config.shape.hidden) / std::sqrt(double(dims.cols)) / std_of_codes);
  t.middle = float((1 << setting.bits) - 1) / 2;
  t.name = name + ".weight";
  out.push_back(t);
  t.dtype = DType::bf16;
  t.shape.back() = dims.cols / setting.group;
  t.name = name + ".scales";
  t.values = SyntheticTensor::Values::scales;
  out.push_back(t);
  t.name = name + ".biases";
  t.values = SyntheticTensor::Values::biases;
  out.push_back(t);
}

}  // namespace

std::uint64_t fnv1a64(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::vector<int> synthetic_token_ids(std::string_view seed, int n, int vocab) {
  const std::uint64_t key = fnv1a64("tokens/" + std::string(seed));
  std::vector<int> ids;
  for (int i = 0; i < n; ++i) ids.push_back(int((synthetic_hash(key, std::uint64_t(i)) >> 8) % std::uint64_t(vocab)));
  return ids;
}

std::int64_t SyntheticTensor::elements() const {
  std::int64_t n = 1;
  for (std::int64_t dim : shape) n *= dim;
  return n;
}

std::vector<SyntheticTensor> synthetic_tensors(const ModelConfig& config) {
  std::vector<SyntheticTensor> out;
  for (const TableEntry& entry : expand_table(config.shape)) {
    const Dims dims = entry.row->dims(config.shape);
    if (entry.row->kind == Kind::matrix || entry.row->kind == Kind::stack)
      append_quantized(out, entry, dims, config);
    else
      out.push_back(plain_tensor(entry, dims));
  }
  return out;
}

void fill_synthetic(const SyntheticTensor& t, std::int64_t begin, std::int64_t end, std::byte* out) {
  switch (t.values) {
    case SyntheticTensor::Values::codes:
      fill<std::uint32_t>(begin, end, out,
                          [&](std::int64_t i) { return std::uint32_t(synthetic_hash(t.key, std::uint64_t(i))); });
      return;
    case SyntheticTensor::Values::scales:
      fill<std::uint16_t>(begin, end, out, [&](std::int64_t i) { return scale_bits(t, i); });
      return;
    case SyntheticTensor::Values::biases:  // from the rounded scale
      fill<std::uint16_t>(begin, end, out,
                          [&](std::int64_t i) { return float_to_bf16(-t.middle * bf16_to_float(scale_bits(t, i))); });
      return;
    case SyntheticTensor::Values::plain: {
      const auto value = [&](std::int64_t i) { return t.low + t.width * unit(t.key, i); };
      if (t.dtype == DType::f32)
        fill<float>(begin, end, out, value);
      else
        fill<std::uint16_t>(begin, end, out, [&](std::int64_t i) { return float_to_bf16(value(i)); });
      return;
    }
  }
}

std::string preset_config(std::string_view name) {
  if (name != "qwen3.6-35b-a3b")
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--preset {}: no such preset; there is qwen3.6-35b-a3b", name));
  using Json = nlohmann::ordered_json;
  constexpr int kLayers = 40, kInterval = 4;
  Json types = Json::array();
  Json quantization = {{"group_size", 64}, {"bits", 4}, {"mode", "affine"}};
  for (int i = 0; i < kLayers; ++i) {
    types.push_back((i + 1) % kInterval ? "linear_attention" : "full_attention");
    for (const char* module : {"mlp.gate", "mlp.shared_expert_gate"})
      quantization[fmt::format("language_model.model.layers.{}.{}", i, module)] = {{"group_size", 64}, {"bits", 8}};
  }
  const Json text = {{"model_type", "qwen3_5_moe_text"},
                     {"vocab_size", 248320},
                     {"hidden_size", 2048},
                     {"num_hidden_layers", kLayers},
                     {"num_attention_heads", 16},
                     {"num_key_value_heads", 2},
                     {"head_dim", 256},
                     {"hidden_act", "silu"},
                     {"max_position_embeddings", 262144},
                     {"rms_norm_eps", 1e-06},
                     {"tie_word_embeddings", false},
                     {"attention_bias", false},
                     {"attn_output_gate", true},
                     {"full_attention_interval", kInterval},
                     {"linear_conv_kernel_dim", 4},
                     {"linear_key_head_dim", 128},
                     {"linear_value_head_dim", 128},
                     {"linear_num_key_heads", 16},
                     {"linear_num_value_heads", 32},
                     {"moe_intermediate_size", 512},
                     {"shared_expert_intermediate_size", 512},
                     {"num_experts_per_tok", 8},
                     {"num_experts", 256},
                     {"rope_parameters",
                      {{"rope_type", "default"},
                       {"rope_theta", 10000000},
                       {"partial_rotary_factor", 0.25},
                       {"mrope_interleaved", true},
                       {"mrope_section", {11, 11, 10}}}},
                     {"layer_types", types}};
  const Json config = {{"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
                       {"model_type", "qwen3_5_moe"},
                       {"text_config", text},
                       {"tie_word_embeddings", false},
                       {"quantization", quantization},
                       {"quantization_config", quantization}};
  return config.dump(1) + "\n";
}

}  // namespace lily
