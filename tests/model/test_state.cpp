// Weights by role, the sizes of the state, KV blocks shared and copied, looking models up, the summary.
#include <gtest/gtest.h>

#include <cstdlib>

#include "model/find.h"
#include "model/fixture.h"
#include "model/state.h"
#include "model/summary.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

ModelShape full_shape() {
  return parse_config(preset_config("qwen3.6-35b-a3b"), "preset").shape;
}

TEST(StateLayout, SizesOfTheFullModel) {
  const StateLayout bf16(full_shape(), DType::bf16), f32(full_shape(), DType::f32);
  EXPECT_EQ(bf16.kv_block_bytes, 256 * 20 * 1024);  // 20 KiB a token
  EXPECT_EQ(f32.kv_block_bytes, 2 * bf16.kv_block_bytes);
  EXPECT_EQ(bf16.recurrent_floats, 32 * 128 * 128);
  EXPECT_EQ(bf16.conv_floats, 3 * 8192);
  EXPECT_EQ(bf16.recurrent_bytes(), 30 * (32 * 128 * 128 + 3 * 8192) * 4);
  // The last head of V of the last layer ends where the block ends.
  EXPECT_EQ(bf16.kv_offset(9, true, 1) + bf16.kv_head_bytes, bf16.kv_block_bytes);
  EXPECT_EQ(bf16.kv_offset(0, false, 0), 0);
  EXPECT_EQ(bf16.kv_offset(0, true, 0), 2 * bf16.kv_head_bytes);
  EXPECT_THROW(StateLayout(full_shape(), DType::f16), Error);
}

SequenceState small_state() {
  return SequenceState(StateLayout(parse_config(small_config().dump(), "c").shape, DType::bf16));
}

TEST(SequenceState, GrowsByBlocks) {
  SequenceState state = small_state();
  EXPECT_EQ(state.recurrent.recurrent.size(), std::size_t(3 * 4 * 32 * 32));
  state.reserve(0);
  EXPECT_EQ(state.blocks.size(), 0u);
  state.reserve(1);
  EXPECT_EQ(state.blocks.size(), 1u);
  state.reserve(256);
  EXPECT_EQ(state.blocks.size(), 1u);
  state.reserve(257);
  ASSERT_EQ(state.blocks.size(), 2u);
  EXPECT_EQ(state.block_data[1], state.blocks[1]->data());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(state.block_data[0]) % 64, 0u);
  state.recurrent_of(2)[0] = 5;
  state.length = 257;
  state.reset();
  EXPECT_EQ(state.length, 0);
  EXPECT_TRUE(state.blocks.empty() && state.block_data.empty());
  EXPECT_EQ(state.recurrent_of(2)[0], 0);
}

TEST(SequenceState, SharedBlocksAreCopiedBeforeTheyAreWritten) {
  SequenceState a = small_state();
  a.reserve(300);
  a.length = 300;
  a.block_data[0][7] = std::byte(1);
  a.block_data[1][7] = std::byte(2);
  SequenceState b = a;  // shares both blocks
  b.reserve(300);       // nothing new: nothing copied
  EXPECT_EQ(b.blocks[1], a.blocks[1]);
  b.reserve(301);
  EXPECT_EQ(b.blocks[0], a.blocks[0]);  // complete, never written again
  EXPECT_NE(b.blocks[1], a.blocks[1]);
  EXPECT_EQ(b.block_data[1], b.blocks[1]->data());
  EXPECT_EQ(b.block_data[1][7], std::byte(2));
  b.block_data[1][7] = std::byte(3);
  EXPECT_EQ(a.block_data[1][7], std::byte(2));
  const auto* own = b.block_data[1];
  b.reserve(302);  // already its own
  EXPECT_EQ(b.block_data[1], own);
}

TEST(Weights, ByRoleAndLayer) {
  Weights weights(parse_config(small_config().dump(), "c").shape);
  EXPECT_FALSE(weights.has({Role::lm_head}));
  EXPECT_THROW(weights.get({Role::lm_head}), Error);
  EXPECT_THROW(weights.get({Role::lm_head, 77}), Error);
  EXPECT_FALSE(weights.has({Role::count_, 0}));
  EXPECT_THROW(weights.set({Role::router, 4}, {}), Error);
  const float value = 1;
  Matrix m;
  m.rows = m.cols = 1;
  m.bits = 32;
  m.row_bytes = m.stack_bytes = 4;
  m.data = reinterpret_cast<const std::byte*>(&value);
  weights.set({Role::router, 3}, m);
  EXPECT_TRUE(weights.has({Role::router, 3}));
  EXPECT_FALSE(weights.has({Role::router, 2}));
  EXPECT_EQ(weights.bytes(), 4);
  float out = 0;
  dequantize_row(weights.get({Role::router, 3}), 0, &out);
  EXPECT_EQ(out, 1);
  EXPECT_THROW(dequantize_row(m, 1, &out), Error);
}

TEST(Summary, CountsEveryByteOnce) {
  TempDir dir;
  write_model(dir.path(), small_config(), mlx_model(small_config()));
  const LoadedModel model = load_model(dir.path());
  const auto groups = summarize(model.weights);
  std::int64_t bytes = 0;
  for (const TensorGroup& g : groups) bytes += g.bytes;
  EXPECT_EQ(bytes, model.weights.bytes());
  const auto& first = groups.front();
  EXPECT_EQ(first.role, "embed_tokens");
  EXPECT_EQ(first.stored, "4 bits, groups of 64, BF16 scales");
  EXPECT_EQ(first.shape, (std::vector<std::int64_t>{300, 128}));
  EXPECT_EQ(first.weights, 300 * 128);
  EXPECT_EQ(first.bytes, 300 * 128 / 2 + 300 * 2 * 4);
}

/// Sets an environment variable for one test.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old, had_ = true;
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    if (had_)
      ::setenv(name_, old_.c_str(), 1);
    else
      ::unsetenv(name_);
  }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

TEST(FindModel, DirectoryNameAndTiny) {
  TempDir cache, dir;
  const Environment environment("XDG_CACHE_HOME", cache.path());
  EXPECT_EQ(models_cache_dir(), cache.path() / "lily" / "models");
  write_bytes(dir / "config.json", "{}");
  EXPECT_EQ(find_model(dir.path()), dir.path());
  fs::create_directories(cache.path() / "lily/models/org/name");
  write_bytes(cache.path() / "lily/models/org/name/tokenizer.json", "{}");  // enough for the text commands
  EXPECT_EQ(find_model("org/name"), cache.path() / "lily/models/org/name");
  const fs::path tiny = find_model("tiny");
  EXPECT_TRUE(fs::exists(tiny / "model.safetensors"));
}

TEST(FindModel, SaysWhereItLooked) {
  TempDir cache, dir;
  const Environment environment("XDG_CACHE_HOME", cache.path());
  const auto error = [](const std::string& model) -> std::string {
    try {
      return "found " + find_model(model).string();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::not_found);
      return e.what();
    }
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(contains(error("absent"), (cache.path() / "lily/models/absent").string())) << error("absent");
  EXPECT_TRUE(contains(error("absent"), "lily pull"));
  EXPECT_TRUE(contains(error(dir.path()), "neither config.json nor tokenizer.json"));
  write_bytes(dir / "model.gguf", "x");
  EXPECT_TRUE(contains(error(dir / "model.gguf"), "found a file"));
  EXPECT_TRUE(contains(error(""), "no model"));
  // A name does not climb out of the cache.
  fs::create_directories(cache.path() / "lily/models");
  write_bytes(cache / "config.json", "{}");
  EXPECT_TRUE(contains(error("../.."), "no model") || contains(error("../.."), "neither"));
}

}  // namespace
}  // namespace lily
