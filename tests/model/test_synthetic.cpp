// Synthetic checkpoints: the formula against values computed by an independent program, resuming, tokenizer files.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "checkpoint/checkpoint.h"
#include "model/fixture.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

// The expected values below come from a Python program written from the description alone.

TEST(Synthetic, HashAndTokens) {
  const std::uint64_t key = fnv1a64("language_model.model.layers.0.linear_attn.in_proj_qkv");
  EXPECT_EQ(key, 0x7e085814f72e28afu);
  EXPECT_EQ(std::uint32_t(synthetic_hash(key, 0)), 0x1beed34bu);
  EXPECT_EQ(std::uint32_t(synthetic_hash(key, 2)), 0xe8b89e14u);
  EXPECT_EQ(std::uint32_t(synthetic_hash(key, 1000000)), 0x6c8702fbu);
  EXPECT_EQ(synthetic_token_ids("t1", 6, 1024), (std::vector<int>{401, 136, 206, 78, 209, 469}));
  EXPECT_EQ(synthetic_token_ids("f1", 6, 248320), (std::vector<int>{54213, 150492, 171640, 243798, 101943, 97869}));
}

class FullSize : public testing::Test {
 protected:
  FullSize() : tensors_(synthetic_tensors(parse_config(preset_config("qwen3.6-35b-a3b"), "preset"))) {}
  std::uint32_t bits(const std::string& name, std::int64_t index) const {
    for (const SyntheticTensor& t : tensors_) {
      if (t.name != name) continue;
      std::uint32_t value = 0;
      fill_synthetic(t, index, index + 1, reinterpret_cast<std::byte*>(&value));
      return value;
    }
    ADD_FAILURE() << "no tensor " << name;
    return 0;
  }
  std::vector<SyntheticTensor> tensors_;
};

TEST_F(FullSize, Codes) {
  const std::string name = "language_model.model.layers.0.linear_attn.in_proj_qkv.weight";
  EXPECT_EQ(bits(name, 0), 0x1beed34bu);
  EXPECT_EQ(bits(name, 1), 0x99b6b015u);
  EXPECT_EQ(bits(name, 1000000), 0x6c8702fbu);
}

TEST_F(FullSize, ScalesAndBiases) {
  struct Case {
    const char* module;
    std::uint32_t scales[3], biases[3];  // of groups 0, 7, 4096
  };
  const Case cases[] = {
      {"language_model.model.layers.0.linear_attn.in_proj_qkv", {0x3baf, 0x3b94, 0x3b9c}, {0xbd24, 0xbd0b, 0xbd12}},
      {"language_model.model.embed_tokens", {0x3e2d, 0x3e61, 0x3e27}, {0xbfa2, 0xbfd3, 0xbf9d}},
      {"language_model.lm_head", {0x3c61, 0x3c74, 0x3c69}, {0xbdd3, 0xbde5, 0xbdda}},
      {"language_model.model.layers.39.mlp.gate", {0x3a17, 0x3a23, 0x3a08}, {0xbd96, 0xbda2, 0xbd87}},
      {"language_model.model.layers.3.mlp.switch_mlp.down_proj", {0x3c21, 0x3c08, 0x3bf3}, {0xbd97, 0xbd7f, 0xbd64}},
  };
  const std::int64_t groups[] = {0, 7, 4096};
  for (const Case& c : cases)
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(bits(std::string(c.module) + ".scales", groups[i]), c.scales[i]) << c.module;
      EXPECT_EQ(bits(std::string(c.module) + ".biases", groups[i]), c.biases[i]) << c.module;
    }
}

TEST_F(FullSize, Vectors) {
  const std::int64_t at[] = {0, 1, 31};
  const std::pair<const char*, std::vector<std::uint32_t>> cases[] = {
      {"language_model.model.norm.weight", {0x3f88, 0x3f88, 0x3f81}},
      {"language_model.model.layers.0.linear_attn.conv1d.weight", {0xbc35, 0x3ecc, 0x3ec5}},
      {"language_model.model.layers.0.linear_attn.A_log", {0xc01bc8ee, 0x3fa64270, 0xc0329fbc}},
      {"language_model.model.layers.0.linear_attn.dt_bias", {0xbf9a, 0xc010, 0xbdcd}},
      {"language_model.model.layers.3.self_attn.q_norm.weight", {0x3f73, 0x3f72, 0x3f56}},
  };
  for (const auto& [name, expected] : cases)
    for (int i = 0; i < 3; ++i) EXPECT_EQ(bits(name, at[i]), expected[std::size_t(i)]) << name;
}

TEST_F(FullSize, BytesOfTheWholeModel) {
  std::int64_t bytes = 0;
  for (const SyntheticTensor& t : tensors_) bytes += t.bytes();
  EXPECT_GT(bytes, 19'400'000'000);
  EXPECT_LT(bytes, 19'600'000'000);
}

fs::path shared_dir() {
  const char* from_environment = std::getenv("LILY_SHARED");
  return from_environment ? from_environment : LILY_SOURCE_DIR "/../shared";
}

TEST(Synthetic, EqualsTheGoldenCheckpointByteForByte) {
  const fs::path golden = shared_dir() / "golden" / "t1";
  if (!fs::exists(golden / "model.safetensors")) GTEST_SKIP() << golden << " is not here (set LILY_SHARED)";
  const SafetensorsFile file(golden / "model.safetensors");
  const auto tensors = synthetic_tensors(parse_config(read_bytes(golden / "config.json"), "config.json"));
  EXPECT_EQ(file.tensors().size(), tensors.size());
  for (const SyntheticTensor& t : tensors) {
    const TensorInfo& info = file.at(t.name);
    ASSERT_EQ(info.shape, t.shape) << t.name;
    ASSERT_EQ(info.dtype, t.dtype) << t.name;
    std::string bytes(std::size_t(t.bytes()), '\0');
    fill_synthetic(t, 0, t.elements(), reinterpret_cast<std::byte*>(bytes.data()));
    EXPECT_EQ(std::memcmp(bytes.data(), file.data(info), bytes.size()), 0) << t.name;
  }
}

TEST(Synthetic, PresetIsTheGoldenConfig) {
  const fs::path golden = shared_dir() / "golden" / "f1" / "config.json";
  if (!fs::exists(golden)) GTEST_SKIP() << golden << " is not here (set LILY_SHARED)";
  EXPECT_EQ(nlohmann::json::parse(preset_config("qwen3.6-35b-a3b")), nlohmann::json::parse(read_bytes(golden)));
  EXPECT_THROW(preset_config("other"), Error);
}

SynthOptions quiet(std::uint64_t shard_bytes, int threads) {
  SynthOptions options;
  options.progress = false;
  options.shard_bytes = shard_bytes;
  options.threads = threads;
  return options;
}

TEST(SynthWrite, ShardsAndThreadsDoNotChangeTheTensors) {
  TempDir one, many;
  write_synthetic(one.path(), small_config().dump(), "c", quiet(1 << 30, 1));
  write_synthetic(many.path(), small_config().dump(), "c", quiet(100000, 2));
  EXPECT_FALSE(fs::exists(one / "model.safetensors.index.json"));
  EXPECT_TRUE(fs::exists(many / "model.safetensors.index.json"));
  const Checkpoint a(one.path()), b(many.path());
  EXPECT_GT(b.files().size(), 3u);
  EXPECT_TRUE(b.warnings().empty());
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (const Checkpoint::Tensor& t : a.tensors()) {
    const Checkpoint::Tensor* other = b.find(t.info->name);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(std::memcmp(t.data(), other->data(), t.info->bytes), 0) << t.info->name;
  }
}

TEST(SynthWrite, ContinuesAndRepairs) {
  TempDir dir;
  const std::string config = small_config().dump();
  const SynthResult first = write_synthetic(dir.path(), config, "c", quiet(100000, 2));
  EXPECT_EQ(first.reused_bytes, 0u);
  std::map<std::string, std::string> before;
  for (const auto& entry : fs::directory_iterator(dir.path()))
    before[entry.path().filename()] = read_bytes(entry.path());
  // Gone, cut, overwritten at the end, left unfinished.
  fs::remove(dir / "model-00001-of-00007.safetensors");
  std::vector<fs::path> shards;
  for (const auto& [name, bytes] : before)
    if (name.find(".safetensors") != std::string::npos && name.find("json") == std::string::npos)
      shards.push_back(dir / name);
  ASSERT_GE(shards.size(), 4u);
  fs::remove(shards[0]);
  fs::resize_file(shards[1], fs::file_size(shards[1]) - 1);
  std::string damaged = read_bytes(shards[2]);
  damaged[damaged.size() - 9000] ^= 1;  // in the middle of a tensor
  write_bytes(shards[2], damaged);
  write_bytes(shards[0].string() + ".2147483647.part", "half");  // no process has this number
  const SynthResult second = write_synthetic(dir.path(), config, "c", quiet(100000, 2));
  EXPECT_EQ(second.bytes, first.bytes);
  EXPECT_EQ(second.reused_bytes, first.bytes - before[shards[0].filename()].size() -
                                     before[shards[1].filename()].size() - before[shards[2].filename()].size());
  std::map<std::string, std::string> after;
  for (const auto& entry : fs::directory_iterator(dir.path()))
    after[entry.path().filename()] = read_bytes(entry.path());
  EXPECT_EQ(before, after);
}

// Whatever lies in a directory that synth did not make stays as it is.
TEST(SynthWrite, RefusesADirectoryThatItDidNotMake) {
  const std::string config = small_config().dump();
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors", "notes"}) {
    TempDir dir;
    write_bytes(dir / name, name == std::string("config.json") ? config : "precious");
    const std::string before = read_bytes(dir / name);
    EXPECT_THROW(write_synthetic(dir.path(), config, "c", quiet(1 << 30, 1)), Error) << name;
    EXPECT_EQ(read_bytes(dir / name), before);
    EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1);
  }
}

TEST(SynthWrite, StopsBetweenPiecesAndGoesOn) {
  TempDir dir, whole;
  const std::string config = small_config().dump();
  write_synthetic(whole.path(), config, "c", quiet(100000, 1));
  SynthOptions options = quiet(100000, 1);
  std::atomic<int> asked{0};
  options.stopped = [&] { return ++asked > 100; };
  try {
    write_synthetic(dir.path(), config, "c", options);
    ADD_FAILURE() << asked;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::cancelled);
  }
  EXPECT_EQ(asked, 101);
  EXPECT_GT(write_synthetic(dir.path(), config, "c", quiet(100000, 1)).reused_bytes, 0u);
  for (const auto& entry : fs::directory_iterator(whole.path()))
    EXPECT_EQ(read_bytes(dir / entry.path().filename()), read_bytes(entry.path()));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()),
            std::distance(fs::directory_iterator(whole.path()), fs::directory_iterator()));
}

TEST(SynthWrite, RefusesAnotherModelsDirectory) {
  TempDir dir;
  write_synthetic(dir.path(), small_config().dump(), "c", quiet(1 << 30, 1));
  EXPECT_THROW(write_synthetic(dir.path(), small_config(8).dump(), "c", quiet(1 << 30, 1)), Error);
  EXPECT_THROW(write_synthetic(dir.path(), small_config().dump(), "c", quiet(100000, 1)),
               Error);  // model.safetensors is no part of it
  TempDir other;
  EXPECT_THROW(write_synthetic(other.path(), raw_config().dump(), "c", quiet(1 << 30, 1)),
               Error);  // no quantization block
  write_bytes(other / "file", "");
  EXPECT_THROW(write_synthetic(other / "file", small_config().dump(), "c", quiet(1 << 30, 1)), Error);
}

TEST(SynthTokenizer, EveryIdHasItsPlace) {
  for (int vocab : {300, 2048, 248320}) {
    TempDir dir;
    ASSERT_TRUE(write_synthetic_tokenizer(dir.path(), vocab, 4096));
    const auto json = nlohmann::json::parse(read_bytes(dir / "tokenizer.json"));
    std::map<int, std::string> ids;
    for (const auto& [text, id] : json["model"]["vocab"].items()) EXPECT_TRUE(ids.emplace(id.get<int>(), text).second);
    for (const auto& token : json["added_tokens"])
      EXPECT_TRUE(ids.emplace(token["id"].get<int>(), token["content"]).second);
    // Without a hole from 0 on, and never beyond the vocabulary.
    EXPECT_EQ(ids.begin()->first, 0);
    EXPECT_EQ(ids.rbegin()->first, int(ids.size()) - 1);
    EXPECT_LE(int(ids.size()), vocab);
    const int first = vocab == 248320 ? 248044 : vocab - 33;
    EXPECT_EQ(ids[first], "<|endoftext|>");
    EXPECT_EQ(ids[first + 1], "<|im_start|>");
    EXPECT_EQ(ids[first + 2], "<|im_end|>");
    EXPECT_EQ(ids[first + 24], "<think>");
    const auto generation = nlohmann::json::parse(read_bytes(dir / "generation_config.json"));
    EXPECT_EQ(generation["eos_token_id"], (nlohmann::json{first + 2, first}));
    const auto config = nlohmann::json::parse(read_bytes(dir / "tokenizer_config.json"));
    EXPECT_EQ(config["eos_token"], "<|im_end|>");
    EXPECT_EQ(config["added_tokens_decoder"].size(), 33u);
  }
  TempDir dir;
  EXPECT_TRUE(write_synthetic_tokenizer(dir.path(), 265, 4096));  // the nine that a chat needs
  EXPECT_FALSE(write_synthetic_tokenizer(dir.path(), 264, 4096));
}

}  // namespace
}  // namespace lily
