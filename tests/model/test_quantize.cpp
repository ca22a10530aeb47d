// Quantising: the rule on hand-made groups, the packing bit by bit, and whole small models.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "model/fixture.h"
#include "model/quantize.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

struct Group {
  std::vector<std::uint8_t> codes;
  float scale, bias;
};
Group quantized(const std::vector<float>& weights, int bits) {
  Group out{std::vector<std::uint8_t>(weights.size()), 0, 0};
  std::uint16_t scale, bias;
  quantize_group(weights, bits, out.codes.data(), &scale, &bias);
  out.scale = bf16_to_float(scale);
  out.bias = bf16_to_float(bias);
  return out;
}

TEST(QuantizeGroup, UpperEndIsFarther) {
  // Range -4…11 in 15 steps of 1: the edge 11 is the bias, the scale is negative, zero is code 11.
  std::vector<float> w(32, 0.0f);
  w[0] = 11;
  w[1] = -4;
  w[2] = 3.4f;
  const Group g = quantized(w, 4);
  EXPECT_EQ(g.scale, -1.0f);
  EXPECT_EQ(g.bias, 11.0f);
  EXPECT_EQ(g.codes[0], 0);
  EXPECT_EQ(g.codes[1], 15);
  EXPECT_EQ(g.codes[2], 8);
  EXPECT_EQ(g.codes[3], 11);
}

TEST(QuantizeGroup, LowerEndIsFarther) {
  std::vector<float> w(32, 0.0f);
  w[0] = -11;
  w[1] = 4;
  const Group g = quantized(w, 4);
  EXPECT_EQ(g.scale, 1.0f);
  EXPECT_EQ(g.bias, -11.0f);
  EXPECT_EQ(g.codes[0], 0);
  EXPECT_EQ(g.codes[1], 15);
  EXPECT_EQ(g.codes[2], 11);
}

TEST(QuantizeGroup, ConstantAndZeroGroups) {
  const Group zero = quantized(std::vector<float>(64, 0.0f), 4);
  for (std::uint8_t code : zero.codes) EXPECT_EQ(zero.scale * float(code) + zero.bias, 0.0f);
  for (float value : {0.5f, -0.5f, 1e-3f}) {
    const Group g = quantized(std::vector<float>(64, value), 4);
    // bias is the edge rounded to bfloat16: half a unit of its last place, 2^-9 of the value
    for (std::uint8_t code : g.codes) EXPECT_NEAR(g.scale * float(code) + g.bias, value, std::abs(value) / 512);
  }
}

TEST(QuantizeGroup, ErrorIsBoundedByHalfAStep) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.02f);
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (int group : {32, 64, 128})
      for (int repeat = 0; repeat < 50; ++repeat) {
        std::vector<float> w(static_cast<std::size_t>(group));
        for (float& x : w) x = normal(random) + (repeat % 3 == 0 ? 0.03f : 0.0f);
        const Group g = quantized(w, bits);
        const float low = *std::min_element(w.begin(), w.end()), high = *std::max_element(w.begin(), w.end());
        const float bins = float((1 << bits) - 1);
        // Half a step of rounding to a code; the far end may lie up to half a step outside the codes, because the scale
        // was stretched (or shrunk) until zero fell on a code: by at most a factor 1 ± 1/(2 steps); and scale and bias
        // are rounded to bfloat16, 2^-9 relative each.
        const float step = std::abs(g.scale);
        const float bound = step * 1.01f + (bins * step + std::abs(g.bias)) / 512;
        double worst = 0, mean = 0;
        for (std::size_t i = 0; i < w.size(); ++i) {
          const double error = std::abs(double(g.scale) * g.codes[i] + g.bias - w[i]);
          worst = std::max(worst, error);
          mean += error / double(group);
        }
        EXPECT_LE(worst, bound) << bits << " " << group;
        EXPECT_LE(mean, step * 0.5 + (bins * step + std::abs(g.bias)) / 512) << bits << " " << group;
        EXPECT_LE(step,
                  2 * (high - low) / bins + 1e-6f);  // the codes are used: a lazy scale would pass the bounds above
      }
}

// Hashes of what mlx.core.quantize 0.32.4 makes (on a CPU) of the matrix below: codes, scales, biases as bytes.
struct MlxResult {
  int bits, group;
  std::uint64_t codes, scales, biases;
};
constexpr MlxResult kMlxResults[] = {
    {2, 32, 0xa730db4f9c87fe30u, 0x4fc8eee2da3fe5d3u, 0xdb121b8dceef07ffu},
    {3, 32, 0x40e6ae56ba57ce0cu, 0xb14cfba275ee15f4u, 0xdb121b8dceef07ffu},
    {4, 32, 0xb3e6d977c70b84beu, 0x988b918527486061u, 0xdb121b8dceef07ffu},
    {5, 32, 0xa8967853e47e54fdu, 0x52fd0346b7d6a268u, 0xdb121b8dceef07ffu},
    {6, 32, 0x8f6c0e0d0d74e43bu, 0xc3de8166c20949b4u, 0xdb121b8dceef07ffu},
    {8, 32, 0xfa2aaf751f026e2au, 0x190c4b85f4c9ee4du, 0xdb121b8dceef07ffu},
    {2, 64, 0xe4474d0c195050c7u, 0xbe0e31c8b1d5e1e3u, 0xc2b94278d5cfe89fu},
    {3, 64, 0x92951d131510f206u, 0xdf0435434e7656e4u, 0xc2b94278d5cfe89fu},
    {4, 64, 0x396b537753a4075cu, 0xf6fc0a9e94234fbcu, 0xc2b94278d5cfe89fu},
    {5, 64, 0x797bdc40dda6f437u, 0x44efeba4bd1bfba5u, 0xc2b94278d5cfe89fu},
    {6, 64, 0xada12f8272a38be7u, 0xed4b67ad935ed4a4u, 0xc2b94278d5cfe89fu},
    {8, 64, 0x8a72e36293a6acbfu, 0x9efbe80c12f0295fu, 0xc2b94278d5cfe89fu},
    {2, 128, 0x4c29d23a71c6cab6u, 0xa2ea4ab6755aca35u, 0xb734dc9f0fbf165du},
    {3, 128, 0xb9dbf5cf4999e7c1u, 0x1e6e7b6f4a467dd1u, 0xb734dc9f0fbf165du},
    {4, 128, 0x35db3c27c74a2560u, 0x516ee5826e0ff702u, 0xb734dc9f0fbf165du},
    {5, 128, 0xd4d339f18ed4ae33u, 0xd683d66a910abadau, 0xb734dc9f0fbf165du},
    {6, 128, 0xeb4f7a5d0c160ab3u, 0x65949c8d52cde7f8u, 0xb734dc9f0fbf165du},
    {8, 128, 0x90f037407921ebdau, 0x2d1c5fa29e9a956du, 0xb734dc9f0fbf165du},
};

TEST(QuantizeGroup, EqualsMlxBitForBit) {
  // [24, 256] bfloat16: rows around zero, slightly above it, wholly below, wholly above, and one of zeros.
  constexpr int kRows = 24, kCols = 256;
  const std::uint64_t key = fnv1a64("quantize test");
  std::vector<float> w(kRows * kCols);
  for (int i = 0; i < kRows * kCols; ++i) {
    const int row = i / kCols;
    const float shift = row % 4 == 0 ? 0.0f : row % 4 == 1 ? 0.03f : row % 4 == 2 ? -0.2f : 0.2f;
    const float u = float(synthetic_hash(key, std::uint64_t(i)) >> 40) * 0x1p-24f;
    w[std::size_t(i)] = row == 23 ? 0.0f : bf16_to_float(float_to_bf16(0.1f * (u - 0.5f) + shift));
  }
  const auto hash = [](const auto& values) {
    return fnv1a64({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])});
  };
  for (const MlxResult& expected : kMlxResults) {
    const std::size_t groups = w.size() / std::size_t(expected.group);
    std::vector<std::uint8_t> codes(w.size()), packed(w.size() * std::size_t(expected.bits) / 8);
    std::vector<std::uint16_t> scales(groups), biases(groups);
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t at = g * std::size_t(expected.group);
      quantize_group({w.data() + at, std::size_t(expected.group)}, expected.bits, codes.data() + at, &scales[g],
                     &biases[g]);
    }
    pack_codes(codes.data(), std::int64_t(codes.size()), expected.bits, packed.data());
    EXPECT_EQ(hash(packed), expected.codes) << expected.bits << " bits, groups of " << expected.group;
    EXPECT_EQ(hash(scales), expected.scales) << expected.bits << " bits, groups of " << expected.group;
    EXPECT_EQ(hash(biases), expected.biases) << expected.bits << " bits, groups of " << expected.group;
  }
}

TEST(PackCodes, OneLittleEndianBitString) {
  std::mt19937 random(3);
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    std::vector<std::uint8_t> codes(128);
    for (auto& code : codes) code = std::uint8_t(random() & ((1u << bits) - 1));
    std::vector<std::uint8_t> packed(std::size_t(128 * bits / 8 + 1), 0xee);
    pack_codes(codes.data(), 128, bits, packed.data());
    for (int i = 0; i < 128 * bits; ++i)
      ASSERT_EQ((packed[std::size_t(i / 8)] >> (i % 8)) & 1, (codes[std::size_t(i / bits)] >> (i % bits)) & 1)
          << bits << " bit " << i;
    EXPECT_EQ(packed.back(), 0xee);
    // What dequantize_row makes of it: scale 1, bias 0 give back the codes.
    const std::vector<float> ones(4, 1.0f), zeros(4, 0.0f);
    Matrix m;
    m.rows = 1;
    m.cols = 128;
    m.bits = bits;
    m.group = 32;
    m.scale_type = DType::f32;
    m.data = reinterpret_cast<const std::byte*>(packed.data());
    m.scales = reinterpret_cast<const std::byte*>(ones.data());
    m.biases = reinterpret_cast<const std::byte*>(zeros.data());
    m.row_bytes = 128 * bits / 8;
    m.scale_row_bytes = 16;
    std::vector<float> row(128);
    dequantize_row(m, 0, row.data());
    for (std::size_t i = 0; i < 128; ++i) ASSERT_EQ(row[i], float(codes[i])) << bits;
  }
}

QuantizeOptions quiet(int bits, int group) {
  QuantizeOptions options;
  options.bits = bits;
  options.group = group;
  options.progress = false;
  return options;
}

/// A raw model as a directory, with a vision tensor, a draft head and a tokenizer.
class QuantizeModel : public testing::Test {
 protected:
  void SetUp() override {
    TestModel model = raw_model(raw_config());
    add_extra(model, "model.visual.x");
    add_extra(model, "mtp.fc.weight");
    fs::create_directory(dir / "raw");
    write_model(dir / "raw", raw_config(), model);
    write_bytes(dir / "raw/tokenizer.json", "{\"t\":1}");
  }
  TempDir dir;
};

TEST_F(QuantizeModel, LoadsBackCloseToTheOriginal) {
  for (const auto& [bits, group] : std::vector<std::pair<int, int>>{{4, 64}, {3, 32}, {6, 128}, {8, 64}}) {
    const fs::path out = dir / ("out" + std::to_string(bits));
    QuantizeOptions options = quiet(bits, group);
    options.shard_bytes = bits == 4 ? 100000 : std::uint64_t(1) << 32;
    const QuantizeResult result = quantize_checkpoint(dir / "raw", out, options);
    EXPECT_TRUE(mentions(result.notes, "model.visual.*"));
    EXPECT_TRUE(mentions(result.notes, "mtp.*"));
    EXPECT_TRUE(mentions(result.notes, "tokenizer.json"));
    EXPECT_EQ(read_bytes(out / "tokenizer.json"), "{\"t\":1}");

    const LoadedModel raw = load_model(dir / "raw"), mlx = load_model(out);
    EXPECT_TRUE(mlx.report.warnings.empty()) << mlx.report.warnings.front();
    EXPECT_FALSE(mlx.report.raw);
    EXPECT_EQ(mlx.report.skipped_bytes, 0);
    EXPECT_EQ(mlx.weights.get({Role::router, 2}).bits, 8);
    EXPECT_EQ(mlx.weights.get({Role::shared_expert_gate, 2}).bits, 8);
    EXPECT_EQ(mlx.weights.get({Role::expert_up_proj, 2}).bits, bits);
    EXPECT_EQ(mlx.weights.get({Role::expert_up_proj, 2}).group, group);
    for (int r = 0; r < int(Role::count_); ++r)
      for (int layer = -1; layer < 4; ++layer) {
        const TensorId id{Role(r), layer};
        ASSERT_EQ(raw.weights.has(id), mlx.weights.has(id));
        if (!raw.weights.has(id)) continue;
        const Matrix &a = raw.weights.get(id), &b = mlx.weights.get(id);
        ASSERT_EQ(a.rows, b.rows);
        std::vector<float> x(static_cast<std::size_t>(a.cols)), y(x.size());
        // Weights are uniform in ±0.05: a step is at most about 0.1 / (2^bits - 1), an error at most one step and the
        // rounding of bias and scale (0.1 / 256). Vectors are rounded to bfloat16, at most 2^-8 of 1.1.
        const float bound = b.quantized() ? 0.101f / float((1 << b.bits) - 1) + 0.0004f : 0.0045f;
        for (std::int64_t e = 0; e < a.count; ++e)
          for (std::int64_t i = 0; i < a.rows; ++i) {
            dequantize_row(a.at(e), i, x.data());
            dequantize_row(b.at(e), i, y.data());
            for (std::size_t c = 0; c < x.size(); ++c)
              ASSERT_NEAR(x[c], y[c], bound) << role_name(id.role) << " " << layer;
          }
      }
  }
}

TEST_F(QuantizeModel, ThreadsDoNotChangeTheBytes) {
  QuantizeOptions options = quiet(4, 64);
  options.threads = 1;
  quantize_checkpoint(dir / "raw", dir / "a", options);
  options.threads = 3;
  quantize_checkpoint(dir / "raw", dir / "b", options);
  EXPECT_EQ(read_bytes(dir / "a/model.safetensors"), read_bytes(dir / "b/model.safetensors"));
  EXPECT_EQ(read_bytes(dir / "a/config.json"), read_bytes(dir / "b/config.json"));
}

TEST_F(QuantizeModel, Refusals) {
  const auto error = [&](const fs::path& in, const fs::path& out, QuantizeOptions options) -> std::string {
    try {
      quantize_checkpoint(in, out, options);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(contains(error(dir / "raw", dir / "o", quiet(7, 64)), "--bits 7"));
  EXPECT_TRUE(contains(error(dir / "raw", dir / "o", quiet(4, 48)), "--group 48"));
  EXPECT_TRUE(contains(error(dir / "raw", dir / "raw", quiet(4, 64)), "not an empty directory"));
  EXPECT_TRUE(contains(error(dir / "absent", dir / "o", quiet(4, 64)), "absent"));
  quantize_checkpoint(dir / "raw", dir / "done", quiet(4, 64));
  EXPECT_TRUE(contains(error(dir / "done", dir / "o", quiet(4, 64)), "already quantised"));

  TestModel model = raw_model(raw_config());
  const std::uint16_t infinity = 0x7f80;
  std::memcpy(tensor_of(model, "model.language_model.layers.1.mlp.experts.down_proj").bytes.data() + 2 * 130, &infinity,
              2);
  fs::create_directory(dir / "inf");
  write_model(dir / "inf", raw_config(), model);
  const std::string message = error(dir / "inf", dir / "o", quiet(4, 64));
  EXPECT_TRUE(contains(message, "layers.1.mlp.switch_mlp.down_proj") && contains(message, "row 1, column 2"))
      << message;
  EXPECT_FALSE(fs::exists(dir / "o"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 3);  // raw, done, inf
}

TEST_F(QuantizeModel, TouchesNothingButItsOutput) {
  fs::rename(dir / "raw", dir / "x.partial");  // the input, under a name that an earlier version would have removed
  fs::create_directory(dir / "other.partial");
  write_bytes(dir / "other.partial/notes", "precious");
  quantize_checkpoint(dir / "x.partial", dir / "x", quiet(4, 64));
  quantize_checkpoint(dir / "x.partial", dir / "other", quiet(4, 64));
  EXPECT_NO_THROW(load_model(dir / "x.partial"));
  EXPECT_EQ(read_bytes(dir / "x/model.safetensors"), read_bytes(dir / "other/model.safetensors"));
  EXPECT_EQ(read_bytes(dir / "other.partial/notes"), "precious");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 4);
}

TEST_F(QuantizeModel, AnEmptyDirectoryIsFilledHoweverItIsNamed) {
  quantize_checkpoint(dir / "raw", dir / "absent/", quiet(4, 64));
  const std::string expected = read_bytes(dir / "absent/model.safetensors");
  EXPECT_FALSE(expected.empty());
  fs::create_directory(dir / "empty");
  quantize_checkpoint(dir / "raw", dir / "empty/", quiet(4, 64));
  EXPECT_EQ(read_bytes(dir / "empty/model.safetensors"), expected);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "empty"), fs::directory_iterator()),
            std::distance(fs::directory_iterator(dir / "absent"), fs::directory_iterator()));
  fs::create_directory(dir / "here");
  fs::create_symlink("here", dir / "link");
  quantize_checkpoint(dir / "raw", dir / "link" / ".", quiet(4, 64));
  EXPECT_EQ(read_bytes(dir / "here/model.safetensors"), expected);
  for (const fs::path& nowhere : {fs::path(""), dir / "nothing" / "."})
    EXPECT_THROW(quantize_checkpoint(dir / "raw", nowhere, quiet(4, 64)), Error) << nowhere;
}

TEST_F(QuantizeModel, WeightsThatNoScaleHoldsAreNamed) {
  TestModel model = raw_model(raw_config());
  const std::uint16_t huge[] = {0x7f7f,
                                0xff7f};  // the largest finite bfloat16 and its negative: their difference is inf
  std::memcpy(tensor_of(model, "model.language_model.layers.1.mlp.experts.down_proj").bytes.data() + 2 * (128 + 64),
              huge, 4);
  fs::create_directory(dir / "huge");
  write_model(dir / "huge", raw_config(), model);
  try {
    quantize_checkpoint(dir / "huge", dir / "o", quiet(4, 64));
    ADD_FAILURE();
  } catch (const Error& e) {
    const std::string said = e.what();
    for (const char* part : {"layers.1.mlp.switch_mlp.down_proj", "row 1, columns 64 to 127", "too large"})
      EXPECT_NE(said.find(part), said.npos) << said;
  }
  EXPECT_FALSE(fs::exists(dir / "o"));
}

TEST_F(QuantizeModel, StopsAndLeavesNothing) {
  QuantizeOptions options = quiet(4, 64);
  int asked = 0;
  options.stopped = [&] { return ++asked > 5; };
  EXPECT_THROW(quantize_checkpoint(dir / "raw", dir / "o", options), Error);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace lily
