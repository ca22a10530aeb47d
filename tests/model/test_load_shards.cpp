// Shards that are missing, cut, swapped or lying, and the layout of the real model by its headers alone.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "checkpoint/checkpoint.h"
#include "model/fixture.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

/// A small synthetic model in several shards with an index.
class Shards : public testing::Test {
 protected:
  void SetUp() override {
    SynthOptions options;
    options.progress = false;
    options.shard_bytes = 200000;
    write_synthetic(dir.path(), small_config().dump(), "config.json", options);
    for (const auto& entry : fs::directory_iterator(dir.path()))
      if (entry.path().extension() == ".safetensors") shards.push_back(entry.path());
    std::sort(shards.begin(), shards.end());
    ASSERT_GE(shards.size(), 3u);
  }
  TempDir dir;
  std::vector<fs::path> shards;
};

TEST_F(Shards, Whole) {
  EXPECT_TRUE(load_model(dir.path()).report.warnings.empty());
}

TEST_F(Shards, MissingShard) {
  const std::string name = shards[1].filename().string();
  fs::remove(shards[1]);
  expect_refused(dir.path(),
                 {"tensor ", "is missing", "shard " + name, "bytes of the model are not there", "interrupted"});
  fs::remove(dir / "model.safetensors.index.json");
  expect_refused(dir.path(), {"shard " + name, "is missing"});
}

TEST_F(Shards, CutByOneByte) {
  for (const fs::path& shard : shards) {
    const auto size = fs::file_size(shard);
    fs::resize_file(shard, size - 1);
    expect_refused(dir.path(), {shard.filename().string(), std::to_string(size - 1), std::to_string(size),
                                "1 bytes are missing", "interrupted"});
    fs::resize_file(shard, size);
  }
}

TEST_F(Shards, CutInsideTheHeader) {
  fs::resize_file(shards.back(), 50);
  expect_refused(dir.path(), {shards.back().filename().string(), "50 bytes", "interrupted"});
  fs::resize_file(shards.back(), 0);
  expect_refused(dir.path(), {shards.back().filename().string(), "0 bytes"});
}

TEST_F(Shards, TwoShardsSwappedLoadTheSame) {
  const LoadedModel before = load_model(dir.path());
  fs::rename(shards[0], dir / "tmp");
  fs::rename(shards[1], shards[0]);
  fs::rename(dir / "tmp", shards[1]);
  const LoadedModel after = load_model(dir.path());
  EXPECT_TRUE(mentions(after.report.warnings, "another shard"));
  std::vector<float> a(128), b(128);
  dequantize_row(before.weights.get({Role::embed_tokens}), 299, a.data());
  dequantize_row(after.weights.get({Role::embed_tokens}), 299, b.data());
  EXPECT_EQ(a, b);
}

TEST_F(Shards, TensorInTwoShards) {
  fs::copy_file(shards[0], dir / "model-extra.safetensors");
  expect_refused(dir.path(), {"two shards", shards[0].filename().string(), "model-extra.safetensors"});
}

TEST_F(Shards, LyingHeader) {
  std::string bytes = read_bytes(shards[0]);
  const auto at = bytes.find("[300,16]");
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 8, "[300,17]");
  write_bytes(shards[0], bytes);
  expect_refused(dir.path(), {shards[0].filename().string(), "embed_tokens.weight", "U32 [300, 17]"});
}

TEST_F(Shards, WrongTypeInTheHeader) {
  std::string bytes = read_bytes(shards[0]);
  const auto at = bytes.find("\"U32\"");
  bytes.replace(at, 5, "\"I32\"");
  write_bytes(shards[0], bytes);
  expect_refused(dir.path(), {shards[0].filename().string(), "embed_tokens.weight", "expected U32", "found I32"});
}

TEST_F(Shards, OneByteTooFewIsRefused) {
  fs::resize_file(shards.back(), fs::file_size(shards.back()) - 1);
  EXPECT_NE(load_error(dir.path()), "");
}

// What the process holds in memory now; 0 where the system does not say so.
std::uint64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::uint64_t all = 0, resident = 0;
  in >> all >> resident;
  return resident * std::uint64_t(sysconf(_SC_PAGESIZE));
}

// The published conversion by header alone: real names, shapes and sizes, in a file that is a hole but for its header.
class RealLayout : public testing::Test {
 protected:
  /// The config with keys that only the published file has.
  static nlohmann::json config() {
    auto json = nlohmann::json::parse(preset_config("qwen3.6-35b-a3b"));
    auto& text = json["text_config"];
    text["attention_dropout"] = 0.0;
    text["dtype"] = "bfloat16";
    text["eos_token_id"] = 248044;
    text["initializer_range"] = 0.02;
    text["mamba_ssm_dtype"] = "float32";
    text["mlp_only_layers"] = nlohmann::json::array();
    text["mtp_num_hidden_layers"] = 1;
    text["mtp_use_dedicated_embeddings"] = false;
    text["output_router_logits"] = false;
    text["router_aux_loss_coef"] = 0.001;
    text["use_cache"] = true;
    json["image_token_id"] = 248056;
    json["video_token_id"] = 248057;
    json["vision_config"] = {{"depth", 27}, {"hidden_size", 1152}, {"model_type", "qwen3_5_moe"}};
    json["transformers_version"] = "4.57.0.dev0";
    return json;
  }
  void write(const std::vector<SafetensorsWriter::Entry>& entries, const nlohmann::json& config) {
    write_bytes(dir / "config.json", config.dump());
    const std::string header = SafetensorsWriter::header_bytes(entries, {{"format", "mlx"}});
    std::uint64_t bytes = header.size();
    for (const auto& entry : entries) bytes += SafetensorsWriter::data_bytes(entry);
    write_bytes(dir / "model.safetensors", header);
    std::error_code error;
    fs::resize_file(dir / "model.safetensors", bytes, error);
    if (error) GTEST_SKIP() << "no sparse files of " << bytes << " bytes here: " << error.message();
    total = bytes;
  }
  TempDir dir;
  std::uint64_t total = 0;
};

TEST_F(RealLayout, Converted) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const SyntheticTensor& t : synthetic_tensors(parse_config(config().dump(), "c")))
    entries.push_back({t.name, t.dtype, t.shape});
  entries.push_back({"vision_tower.blocks.0.attn.qkv.weight", DType::bf16, {3456, 1152}});
  write(entries, config());
  const std::uint64_t before = resident_bytes();
  const LoadedModel model = load_model(dir.path());
  EXPECT_LT(resident_bytes() - before, total / 20) << "loading reads the header and maps the rest";
  EXPECT_GT(total, 19'000'000'000u);
  EXPECT_EQ(model.shape.layers, 40);
  EXPECT_EQ(model.shape.count(LayerKind::full_attention), 10);
  EXPECT_EQ(model.shape.rotary_dim, 64);
  const auto check = [&](Role role, int layer, std::int64_t count, std::int64_t rows, std::int64_t cols, int bits) {
    const Matrix& m = model.weights.get({role, layer});
    EXPECT_EQ(m.count, count) << role_name(role);
    EXPECT_EQ(m.rows, rows) << role_name(role);
    EXPECT_EQ(m.cols, cols) << role_name(role);
    EXPECT_EQ(m.bits, bits) << role_name(role);
  };
  // The table of the model's description, figure by figure.
  check(Role::embed_tokens, -1, 1, 248320, 2048, 4);
  check(Role::lm_head, -1, 1, 248320, 2048, 4);
  check(Role::final_norm, -1, 1, 1, 2048, 32);
  check(Role::in_proj_qkv, 0, 1, 8192, 2048, 4);
  check(Role::in_proj_z, 0, 1, 4096, 2048, 4);
  check(Role::in_proj_b, 0, 1, 32, 2048, 4);
  check(Role::in_proj_a, 0, 1, 32, 2048, 4);
  check(Role::gdn_out_proj, 0, 1, 2048, 4096, 4);
  check(Role::conv1d, 0, 1, 8192, 4, 32);
  check(Role::a_log, 0, 1, 1, 32, 32);
  check(Role::dt_bias, 0, 1, 1, 32, 32);
  check(Role::gdn_norm, 0, 1, 1, 128, 32);
  check(Role::q_proj, 3, 1, 8192, 2048, 4);
  check(Role::k_proj, 3, 1, 512, 2048, 4);
  check(Role::v_proj, 3, 1, 512, 2048, 4);
  check(Role::o_proj, 3, 1, 2048, 4096, 4);
  check(Role::q_norm, 3, 1, 1, 256, 32);
  check(Role::router, 39, 1, 256, 2048, 8);
  check(Role::shared_expert_gate, 39, 1, 1, 2048, 8);
  check(Role::expert_gate_proj, 39, 256, 512, 2048, 4);
  check(Role::expert_up_proj, 39, 256, 512, 2048, 4);
  check(Role::expert_down_proj, 39, 256, 2048, 512, 4);
  check(Role::shared_gate_proj, 39, 1, 512, 2048, 4);
  check(Role::shared_down_proj, 39, 1, 2048, 512, 4);
  EXPECT_TRUE(mentions(model.report.lines, "vision_tower.*"));
  EXPECT_FALSE(mentions(model.report.warnings, "without effect"));  // no key of the published file is unknown
}

TEST_F(RealLayout, Raw) {
  auto json = config();
  json.erase("quantization");
  json.erase("quantization_config");
  std::vector<SafetensorsWriter::Entry> entries{
      {"lm_head.weight", DType::bf16, {248320, 2048}},
      {"model.language_model.embed_tokens.weight", DType::bf16, {248320, 2048}},
      {"model.language_model.norm.weight", DType::bf16, {2048}},
      {"model.visual.patch_embed.proj.weight", DType::bf16, {1152, 3, 2, 16, 16}},
      {"mtp.fc.weight", DType::bf16, {2048, 4096}}};
  for (int i = 0; i < 40; ++i) {
    const std::string p = "model.language_model.layers." + std::to_string(i) + ".";
    const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
      entries.push_back({p + name, DType::bf16, std::move(shape)});
    };
    add("input_layernorm.weight", {2048});
    add("post_attention_layernorm.weight", {2048});
    if (i % 4 != 3) {
      add("linear_attn.in_proj_qkv.weight", {8192, 2048});
      add("linear_attn.in_proj_z.weight", {4096, 2048});
      add("linear_attn.in_proj_b.weight", {32, 2048});
      add("linear_attn.in_proj_a.weight", {32, 2048});
      add("linear_attn.out_proj.weight", {2048, 4096});
      add("linear_attn.conv1d.weight", {8192, 1, 4});
      add("linear_attn.A_log", {32});
      add("linear_attn.dt_bias", {32});
      add("linear_attn.norm.weight", {128});
    } else {
      add("self_attn.q_proj.weight", {8192, 2048});
      add("self_attn.k_proj.weight", {512, 2048});
      add("self_attn.v_proj.weight", {512, 2048});
      add("self_attn.o_proj.weight", {2048, 4096});
      add("self_attn.q_norm.weight", {256});
      add("self_attn.k_norm.weight", {256});
    }
    add("mlp.gate.weight", {256, 2048});
    add("mlp.shared_expert_gate.weight", {1, 2048});
    add("mlp.experts.gate_up_proj", {256, 1024, 2048});
    add("mlp.experts.down_proj", {256, 2048, 512});
    add("mlp.shared_expert.gate_proj.weight", {512, 2048});
    add("mlp.shared_expert.up_proj.weight", {512, 2048});
    add("mlp.shared_expert.down_proj.weight", {2048, 512});
  }
  write(entries, json);
  const LoadedModel model = load_model(dir.path());
  EXPECT_TRUE(model.report.raw);
  EXPECT_GT(total, 69'000'000'000u);
  EXPECT_EQ(model.weights.get({Role::expert_up_proj, 39}).data - model.weights.get({Role::expert_gate_proj, 39}).data,
            512 * 2048 * 2);
  EXPECT_EQ(model.weights.get({Role::input_norm, 0}).vector()[0], 1.0f);  // a hole reads as zero, and raw adds one
  EXPECT_TRUE(mentions(model.report.lines, "model.visual.* (1 tensors"));
}

}  // namespace
}  // namespace lily
