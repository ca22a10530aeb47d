// Small models made by code: MLX-quantised and raw ones, to be damaged by the tests.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "checkpoint/safetensors.h"
#include "model/load.h"
#include "model/synthetic.h"
#include "temp_dir.h"

namespace lily {

struct TestTensor {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};
using TestModel = std::vector<TestTensor>;

inline nlohmann::json quantization_json(int bits, int group) {
  return {{"bits", bits}, {"group_size", group}, {"mode", "affine"}};
}

/// Every matrix has 128 columns, so that groups of 32, 64 and 128 fit. Layers: 3 Gated DeltaNet, 1 attention.
inline nlohmann::json small_text_config() {
  return {{"model_type", "qwen3_5_moe_text"},
          {"vocab_size", 300},
          {"hidden_size", 128},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 32},
          {"hidden_act", "silu"},
          {"max_position_embeddings", 4096},
          {"rms_norm_eps", 1e-6},
          {"tie_word_embeddings", false},
          {"attention_bias", false},
          {"attn_output_gate", true},
          {"full_attention_interval", 4},
          {"linear_conv_kernel_dim", 4},
          {"linear_key_head_dim", 32},
          {"linear_value_head_dim", 32},
          {"linear_num_key_heads", 2},
          {"linear_num_value_heads", 4},
          {"moe_intermediate_size", 128},
          {"shared_expert_intermediate_size", 128},
          {"num_experts_per_tok", 2},
          {"num_experts", 4},
          {"rope_parameters",
           {{"rope_type", "default"},
            {"rope_theta", 10000000},
            {"partial_rotary_factor", 0.25},
            {"mrope_interleaved", true},
            {"mrope_section", {2, 1, 1}}}},
          {"layer_types", {"linear_attention", "linear_attention", "linear_attention", "full_attention"}}};
}
inline nlohmann::json small_config(int bits = 4, int group = 64) {
  return {{"model_type", "qwen3_5_moe"},
          {"text_config", small_text_config()},
          {"quantization", quantization_json(bits, group)}};
}

/// The tensors of a converted model; `tensor name → new name` renames them.
inline TestModel mlx_model(const nlohmann::json& config) {
  TestModel out;
  for (const SyntheticTensor& t : synthetic_tensors(parse_config(config.dump(), "config.json"))) {
    std::string bytes(std::size_t(t.bytes()), '\0');
    fill_synthetic(t, 0, t.elements(), reinterpret_cast<std::byte*>(bytes.data()));
    out.push_back({t.name, t.dtype, t.shape, std::move(bytes)});
  }
  return out;
}

inline std::string bf16_bytes(const std::vector<float>& values) {
  std::string out(values.size() * 2, '\0');
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = float_to_bf16(values[i]);
    std::memcpy(out.data() + 2 * i, &bits, 2);
  }
  return out;
}

/// A raw Hugging Face model in bf16: value i of a matrix is about N(0, 0.05), of a norm w - 1 about ±0.05.
inline TestModel raw_model(const nlohmann::json& config) {
  const ModelShape s = parse_config(config.dump(), "config.json").shape;
  TestModel out;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, float middle = 0,
                       float spread = 0.1f) {
    std::int64_t n = 1;
    for (std::int64_t d : shape) n *= d;
    std::vector<float> values(static_cast<std::size_t>(n));
    const std::uint64_t key = fnv1a64(name);
    for (std::int64_t i = 0; i < n; ++i)
      values[std::size_t(i)] = middle + spread * (float(synthetic_hash(key, std::uint64_t(i)) >> 40) * 0x1p-24f - 0.5f);
    out.push_back({name, DType::bf16, std::move(shape), bf16_bytes(values)});
  };
  add("model.language_model.embed_tokens.weight", {s.vocab, s.hidden});
  for (int layer = 0; layer < s.layers; ++layer) {
    const std::string p = "model.language_model.layers." + std::to_string(layer) + ".";
    add(p + "input_layernorm.weight", {s.hidden});
    add(p + "post_attention_layernorm.weight", {s.hidden});
    if (s.layer_kinds[std::size_t(layer)] == LayerKind::gated_deltanet) {
      add(p + "linear_attn.in_proj_qkv.weight", {s.conv_channels(), s.hidden});
      add(p + "linear_attn.in_proj_z.weight", {s.value_width(), s.hidden});
      add(p + "linear_attn.in_proj_b.weight", {s.gdn_value_heads, s.hidden});
      add(p + "linear_attn.in_proj_a.weight", {s.gdn_value_heads, s.hidden});
      add(p + "linear_attn.conv1d.weight", {s.conv_channels(), 1, s.conv_kernel});
      add(p + "linear_attn.A_log", {s.gdn_value_heads});
      add(p + "linear_attn.dt_bias", {s.gdn_value_heads});
      add(p + "linear_attn.norm.weight", {s.gdn_value_dim}, 1);
      add(p + "linear_attn.out_proj.weight", {s.hidden, s.value_width()});
    } else {
      add(p + "self_attn.q_proj.weight", {2 * s.attn_width(), s.hidden});
      add(p + "self_attn.k_proj.weight", {s.kv_width(), s.hidden});
      add(p + "self_attn.v_proj.weight", {s.kv_width(), s.hidden});
      add(p + "self_attn.o_proj.weight", {s.hidden, s.attn_width()});
      add(p + "self_attn.q_norm.weight", {s.head_dim});
      add(p + "self_attn.k_norm.weight", {s.head_dim});
    }
    add(p + "mlp.gate.weight", {s.experts, s.hidden});
    add(p + "mlp.shared_expert_gate.weight", {1, s.hidden});
    add(p + "mlp.experts.gate_up_proj", {s.experts, 2 * s.expert_ffn, s.hidden});
    add(p + "mlp.experts.down_proj", {s.experts, s.hidden, s.expert_ffn});
    add(p + "mlp.shared_expert.gate_proj.weight", {s.shared_ffn, s.hidden});
    add(p + "mlp.shared_expert.up_proj.weight", {s.shared_ffn, s.hidden});
    add(p + "mlp.shared_expert.down_proj.weight", {s.hidden, s.shared_ffn});
  }
  add("model.language_model.norm.weight", {s.hidden});
  if (!s.tied_embeddings) add("lm_head.weight", {s.vocab, s.hidden});
  return out;
}
inline nlohmann::json raw_config() {
  nlohmann::json config = small_config();
  config.erase("quantization");
  return config;
}

inline TestTensor& tensor_of(TestModel& model, const std::string& name) {
  for (TestTensor& t : model)
    if (t.name == name) return t;
  throw std::runtime_error("fixture: no tensor " + name);
}
inline void drop(TestModel& model, const std::string& name) {
  std::erase_if(model, [&](const TestTensor& t) { return t.name == name; });
}
inline void rename_all(TestModel& model, const std::function<std::string(const std::string&)>& name) {
  for (TestTensor& t : model) t.name = name(t.name);
}
/// "vision_tower.x" and the like, of 8 bytes.
inline void add_extra(TestModel& model, const std::string& name) {
  model.push_back({name, DType::bf16, {4}, std::string(8, '\7')});
}

/// Plainly, without the flushing of SafetensorsWriter: the tests write hundreds of files.
inline void write_tensors(const std::filesystem::path& path, const TestModel& model) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const TestTensor& t : model) entries.push_back({t.name, t.dtype, t.shape});
  std::string bytes = SafetensorsWriter::header_bytes(entries, {});
  for (const TestTensor& t : model) bytes += t.bytes;
  write_bytes(path, bytes);
}
inline void write_model(const std::filesystem::path& dir, const nlohmann::json& config, const TestModel& model) {
  write_bytes(dir / "config.json", config.dump());
  write_tensors(dir / "model.safetensors", model);
}

inline std::string load_error(const std::filesystem::path& dir) {
  try {
    load_model(dir);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
/// Fails unless loading `dir` fails with a message that holds all of `words`.
inline void expect_refused(const std::filesystem::path& dir, const std::vector<std::string>& words) {
  const std::string message = load_error(dir);
  EXPECT_NE(message, "") << "loaded";
  for (const std::string& word : words)
    EXPECT_NE(message.find(word), std::string::npos) << "expected \"" << word << "\" in: " << message;
}
inline bool mentions(const std::vector<std::string>& lines, const std::string& part) {
  for (const std::string& line : lines)
    if (line.find(part) != std::string::npos) return true;
  return false;
}

}  // namespace lily
