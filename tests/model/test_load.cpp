// Loading: every way a checkpoint can be spelt loads, every way it can be damaged is refused by name.
#include <gtest/gtest.h>

#include <cmath>

#include "model/fixture.h"
#include "model/names.h"

namespace lily {
namespace {

using Json = nlohmann::json;

constexpr const char* kPrefixes[] = {"model.language_model.", "language_model.model.", "model.", ""};

TEST(Load, EveryPrefixGroupAndWidth) {
  for (const char* prefix : kPrefixes)
    for (int group : {32, 64, 128})
      for (int bits : {2, 3, 4, 5, 6, 8}) {
        TempDir dir;
        Json config = small_config(bits, group);
        // One module differs, and its override is spelt with this prefix.
        const std::string odd = "layers.0.linear_attn.in_proj_qkv";
        const int odd_bits = bits == 6 ? 8 : 6;
        config["quantization"][prefix + odd] = {{"bits", odd_bits}, {"group_size", 32}};
        TestModel model = mlx_model(config);
        rename_all(model, [&](const std::string& name) { return prefix + std::string(strip_prefix(name)); });
        write_model(dir.path(), config, model);
        const LoadedModel loaded = load_model(dir.path());
        EXPECT_TRUE(loaded.report.warnings.empty()) << loaded.report.warnings.front();
        const Matrix& m = loaded.weights.get({Role::in_proj_qkv, 0});
        EXPECT_EQ(m.bits, odd_bits);
        EXPECT_EQ(m.group, 32);
        const Matrix& down = loaded.weights.get({Role::expert_down_proj, 3});
        EXPECT_EQ(down.bits, bits);
        EXPECT_EQ(down.group, group);
        // The last value of the last expert, taken apart by hand.
        const TestTensor& codes = tensor_of(model, prefix + std::string("layers.3.mlp.switch_mlp.down_proj.weight"));
        std::uint32_t code = 0;
        const std::size_t last_bit = codes.bytes.size() * 8;
        for (int b = 0; b < bits; ++b) {
          const std::size_t at = last_bit - std::size_t(bits) + std::size_t(b);
          code |= ((static_cast<unsigned char>(codes.bytes[at / 8]) >> (at % 8)) & 1u) << b;
        }
        const auto last_bf16 = [&](const char* part) {
          const std::string& bytes =
              tensor_of(model, prefix + std::string("layers.3.mlp.switch_mlp.down_proj.") + part).bytes;
          std::uint16_t value;
          std::memcpy(&value, bytes.data() + bytes.size() - 2, 2);
          return bf16_to_float(value);
        };
        std::vector<float> row(128);
        dequantize_row(down.at(3), 127, row.data());
        EXPECT_EQ(row[127], last_bf16("scales") * float(code) + last_bf16("biases"))
            << prefix << " " << bits << " " << group;
      }
}

TEST(Load, LmHeadUnderEveryPrefix) {
  for (const char* prefix : {"", "language_model.", "model.", "model.language_model.", "language_model.model."}) {
    TempDir dir;
    TestModel model = mlx_model(small_config());
    rename_all(model, [&](const std::string& name) {
      return strip_prefix(name).rfind("lm_head", 0) == 0 ? prefix + std::string(strip_prefix(name)) : name;
    });
    write_model(dir.path(), small_config(), model);
    EXPECT_EQ(load_error(dir.path()), "") << prefix;
  }
}

TEST(Load, ScaleTypes) {
  for (DType type : {DType::bf16, DType::f16, DType::f32}) {
    TempDir dir;
    TestModel model = mlx_model(small_config());
    std::map<std::string, float> first;  // scale and bias of the first group
    for (const char* part : {"scales", "biases"}) {
      TestTensor& t = tensor_of(model, std::string("language_model.lm_head.") + part);
      std::string bytes;
      for (std::size_t i = 0; i < t.bytes.size() / 2; ++i) {
        std::uint16_t bits;
        std::memcpy(&bits, t.bytes.data() + 2 * i, 2);
        const float value = type == DType::f16 ? 1.0f : bf16_to_float(bits);
        if (i == 0) first[part] = value;
        if (type == DType::f32) bytes.append(reinterpret_cast<const char*>(&value), 4);
        if (type == DType::bf16) bytes.append(reinterpret_cast<const char*>(&bits), 2);
        if (type == DType::f16) bytes.append("\x00\x3c", 2);  // 1.0 in binary16
      }
      t.dtype = type;
      t.bytes = bytes;
    }
    write_model(dir.path(), small_config(), model);
    const LoadedModel loaded = load_model(dir.path());
    const Matrix& head = loaded.weights.get({Role::lm_head});
    EXPECT_EQ(head.scale_type, type);
    std::vector<float> row(128);
    dequantize_row(head, 0, row.data());
    const int code = static_cast<unsigned char>(tensor_of(model, "language_model.lm_head.weight").bytes[0]) & 15;
    EXPECT_EQ(row[0], first["scales"] * float(code) + first["biases"]) << dtype_name(type);
  }
}

TEST(Load, UnquantisedMatricesAmongQuantisedOnes) {
  TempDir dir;
  TestModel model = mlx_model(small_config());
  const std::string name = "language_model.model.layers.1.mlp.gate";
  drop(model, name + ".scales");
  drop(model, name + ".biases");
  TestTensor& t = tensor_of(model, name + ".weight");
  t.dtype = DType::f32;
  t.shape = {4, 128};
  t.bytes.assign(4 * 128 * 4, '\0');
  const float mark = 2.5f;
  std::memcpy(t.bytes.data() + t.bytes.size() - 4, &mark, 4);
  write_model(dir.path(), small_config(), model);
  const LoadedModel loaded = load_model(dir.path());
  EXPECT_TRUE(loaded.report.warnings.empty());
  const Matrix& m = loaded.weights.get({Role::router, 1});
  EXPECT_EQ(m.plain, DType::f32);
  EXPECT_FALSE(m.quantized());
  std::vector<float> row(128);
  dequantize_row(m, 3, row.data());
  EXPECT_EQ(row[127], mark);
}

TEST(Load, ShapesAreBelievedAgainstTheConfigAndSaidSo) {
  TempDir dir;
  write_model(dir.path(), small_config(8, 32), mlx_model(small_config(4, 64)));
  const LoadedModel loaded = load_model(dir.path());
  EXPECT_EQ(loaded.weights.get({Role::lm_head}).bits, 4);
  ASSERT_FALSE(loaded.report.warnings.empty());
  EXPECT_TRUE(mentions(loaded.report.warnings,
                       "language_model.model.embed_tokens.weight: its shape says 4 bits, groups of 64, config.json "
                       "says 8 bits, groups of 32"));
  EXPECT_TRUE(mentions(loaded.report.warnings, "more tensors"));
  EXPECT_LE(loaded.report.warnings.size(), 6u);
}

TEST(Load, OverrideOfNothingIsReported) {
  TempDir dir;
  Json config = small_config();
  config["quantization"]["model.layers.9.mlp.gate"] = {{"bits", 8}, {"group_size", 64}};
  config["quantization"]["vision_tower.blocks.0.attn"] = {{"bits", 8}, {"group_size", 64}};
  write_model(dir.path(), config, mlx_model(small_config()));
  const LoadedModel loaded = load_model(dir.path());
  ASSERT_EQ(loaded.report.warnings.size(), 1u);
  EXPECT_TRUE(mentions(loaded.report.warnings, "layers.9.mlp.gate"));
}

TEST(Load, VisionAndDraftTensorsAreSkippedInOneLine) {
  TempDir dir;
  TestModel model = mlx_model(small_config());
  for (const char* name :
       {"vision_tower.blocks.0.attn.weight", "vision_tower.merger.weight", "model.visual.blocks.0.weight",
        "language_model.vision_tower.x", "mtp.fc.weight", "language_model.mtp.fc.weight", "model.mtp.norm.weight",
        "model.language_model.mtp.norm.weight"})
    add_extra(model, name);
  write_model(dir.path(), small_config(), model);
  const LoadedModel loaded = load_model(dir.path());
  ASSERT_EQ(loaded.report.lines.size(), 2u);
  const std::string& line = loaded.report.lines[1];
  for (const char* group : {"vision_tower.* (2 tensors, 16 bytes)", "model.visual.*", "language_model.vision_tower.*",
                            "mtp.*", "language_model.mtp.*"})
    EXPECT_NE(line.find(group), std::string::npos) << line;
  EXPECT_EQ(loaded.report.skipped_bytes, 64);
}

TEST(Load, UnknownTensorsAreRefused) {
  for (const char* name :
       {"language_model.model.layers.0.mlp.extra.weight", "language_model.model.layers.4.mlp.gate.weight", "vision.x",
        "language_model.model.layers.0.self_attn.q_proj.weight", "language_model.model.layers.0.mlp.gate.bias",
        "language_model.model.layers.0.linear_attn.A_log.weight", "mtpx.y", "layers.00.mlp.gate.weight"}) {
    TempDir dir;
    TestModel model = mlx_model(small_config());
    add_extra(model, name);
    write_model(dir.path(), small_config(), model);
    expect_refused(dir.path(), {"model.safetensors", name, "expected no such tensor", "BF16 [4]"});
  }
}

TEST(Load, EveryTensorIsNeeded) {
  for (const Json& config : {small_config(), raw_config()}) {
    const TestModel whole = config.contains("quantization") ? mlx_model(config) : raw_model(config);
    for (const TestTensor& gone : whole) {
      TempDir dir;
      TestModel model = whole;
      drop(model, gone.name);
      write_model(dir.path(), config, model);
      const std::string message = load_error(dir.path());
      EXPECT_NE(message.find("is missing"), std::string::npos) << gone.name << ": " << message;
      EXPECT_NE(message.find(strip_prefix(gone.name)), std::string::npos) << gone.name << ": " << message;
    }
  }
}

TEST(Load, VectorsMustBeFinite) {
  TempDir dir;
  TestModel model = mlx_model(small_config());
  TestTensor& a_log = tensor_of(model, "language_model.model.layers.1.linear_attn.A_log");
  const float infinite = INFINITY;
  std::memcpy(a_log.bytes.data() + 4, &infinite, 4);
  write_model(dir.path(), small_config(), model);
  const std::string message = load_error(dir.path());
  for (const char* part : {"layers.1.linear_attn.A_log", "finite", "inf", "element 1"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Load, EveryShapeAndTypeIsChecked) {
  for (const Json& config : {small_config(), raw_config()}) {
    const TestModel whole = config.contains("quantization") ? mlx_model(config) : raw_model(config);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      for (int damage = 0; damage < 2; ++damage) {
        TempDir dir;
        TestModel model = whole;
        TestTensor& t = model[i];
        if (damage == 0) {  // one row more
          const std::size_t row = t.bytes.size() / std::size_t(t.shape[0]);
          t.shape[0] += 1;
          t.bytes += std::string(row, '\0');
        } else {  // the same bytes as another type
          t.dtype = DType::i8;
          t.shape.back() *= std::int64_t(t.bytes.size());
          t.shape = {std::int64_t(t.bytes.size())};
        }
        write_model(dir.path(), config, model);
        expect_refused(dir.path(), {"model.safetensors", t.name, "expected", "found"});
      }
    }
  }
}

TEST(Load, WidthsThatNoBitCountExplains) {
  TempDir dir;
  TestModel model = mlx_model(small_config());
  TestTensor& t = tensor_of(model, "language_model.lm_head.weight");
  t.shape = {300, 17};
  t.bytes.assign(300 * 17 * 4, '\0');
  write_model(dir.path(), small_config(), model);
  expect_refused(dir.path(), {"language_model.lm_head.weight", "2, 3, 4, 5, 6 or 8 bits", "U32 [300, 16] at 4 bits",
                              "U32 [300, 17]"});
}

TEST(Load, SameTensorUnderTwoPrefixes) {
  TempDir dir;
  TestModel model = mlx_model(small_config());
  model.push_back(tensor_of(model, "language_model.model.norm.weight"));
  model.back().name = "model.norm.weight";
  write_model(dir.path(), small_config(), model);
  expect_refused(dir.path(), {"language_model.model.norm.weight", "model.norm.weight", "two names"});
}

TEST(Load, TiedEmbeddings) {
  TempDir dir;
  Json config = small_config();
  config["text_config"]["tie_word_embeddings"] = true;
  write_model(dir.path(), config, mlx_model(config));
  const LoadedModel loaded = load_model(dir.path());
  EXPECT_EQ(loaded.weights.get({Role::lm_head}).data, loaded.weights.get({Role::embed_tokens}).data);
  TempDir both;
  write_model(both.path(), config, mlx_model(small_config()));
  EXPECT_TRUE(mentions(load_model(both.path()).report.warnings, "lm_head"));
}

// ---- raw or converted, and the norms ----

double mean_of(const Matrix& m) {
  double sum = 0;
  for (std::int64_t i = 0; i < m.cols; ++i) sum += m.vector()[i];
  return sum / double(m.cols);
}

TEST(NormShift, RawAndConvertedWithAndWithoutMtp) {
  for (bool raw : {false, true})
    for (bool mtp : {false, true}) {
      TempDir dir;
      const Json config = raw ? raw_config() : small_config();
      TestModel model = raw ? raw_model(config) : mlx_model(config);
      if (mtp) {
        add_extra(model, "mtp.fc.weight");
        add_extra(model, "mtp.layers.0.input_layernorm.weight");
      }
      write_model(dir.path(), config, model);
      const LoadedModel loaded = load_model(dir.path());
      EXPECT_EQ(loaded.report.raw, raw);
      EXPECT_TRUE(loaded.report.warnings.empty());
      for (TensorId id : {TensorId{Role::input_norm, 0}, TensorId{Role::post_norm, 1}, TensorId{Role::q_norm, 3},
                          TensorId{Role::k_norm, 3}, TensorId{Role::final_norm}, TensorId{Role::gdn_norm, 2}})
        EXPECT_NEAR(mean_of(loaded.weights.get(id)), 1.0, 0.05) << role_name(id.role) << raw << mtp;
    }
}

TEST(NormShift, NormsThatGotOneTwiceAreRefused) {
  const auto shifted = [](TestModel model) {
    for (TestTensor& t : model)
      if (t.name.find("layernorm") != std::string::npos)
        for (std::size_t i = 0; i < t.bytes.size(); i += 2) {
          std::uint16_t bits;
          std::memcpy(&bits, t.bytes.data() + i, 2);
          bits = float_to_bf16(bf16_to_float(bits) + 1.0f);
          std::memcpy(t.bytes.data() + i, &bits, 2);
        }
    return model;
  };
  TempDir converted, raw, once;
  write_model(converted.path(), small_config(), shifted(mlx_model(small_config())));
  expect_refused(converted.path(), {"input_layernorm", "twice", "converted"});
  // Raw by its convolution, yet its norms already had the one.
  write_model(raw.path(), raw_config(), shifted(raw_model(raw_config())));
  expect_refused(raw.path(), {"input_layernorm", "twice", "raw"});
  // Converted by its convolution, norms never shifted: odd, and said so.
  TestModel model = raw_model(raw_config());
  for (TestTensor& t : model)
    if (t.name.find("conv1d") != std::string::npos) std::swap(t.shape[1], t.shape[2]);
  write_model(once.path(), raw_config(), model);
  EXPECT_TRUE(mentions(load_model(once.path()).report.warnings, "without adding one"));
}

TEST(NormShift, HalfRawHalfConvertedIsRefused) {
  TempDir dir;
  TestModel model = mlx_model(small_config());
  tensor_of(model, "language_model.model.layers.1.linear_attn.conv1d.weight").shape = {256, 1, 4};
  write_model(dir.path(), small_config(), model);
  expect_refused(dir.path(), {"layers.1.linear_attn.conv1d.weight", "layers.0.linear_attn.conv1d.weight", "half raw"});
}

TEST(Raw, ExpertsAreSplitWithoutCopying) {
  TempDir dir;
  TestModel model = raw_model(raw_config());
  write_model(dir.path(), raw_config(), model);
  const LoadedModel loaded = load_model(dir.path());
  const TestTensor& both =
      tensor_of(model, "model.language_model.layers.1.mlp.experts.gate_up_proj");  // [4, 2 * 128, 128]
  const auto value = [&](int expert, int row, int col) {
    std::uint16_t bits;
    std::memcpy(&bits, both.bytes.data() + 2 * ((expert * 256 + row) * 128 + col), 2);
    return bf16_to_float(bits);
  };
  std::vector<float> row(128);
  dequantize_row(loaded.weights.get({Role::expert_gate_proj, 1}).at(2), 5, row.data());
  EXPECT_EQ(row[7], value(2, 5, 7));
  dequantize_row(loaded.weights.get({Role::expert_up_proj, 1}).at(2), 5, row.data());
  EXPECT_EQ(row[7], value(2, 128 + 5, 7));
  EXPECT_LT(loaded.report.copied_bytes, 40000);  // the vectors alone
}

TEST(Load, OddPlacesInTheFileAreRealigned) {
  TempDir dir;
  TestModel model = mlx_model(small_config());
  model.insert(model.begin(), {"vision_tower.odd", DType::u8, {1}, "x"});
  write_model(dir.path(), small_config(), model);
  const LoadedModel loaded = load_model(dir.path());
  EXPECT_GT(loaded.report.realigned_tensors, 0);
  const LoadedModel straight = [] {
    TempDir other;
    write_model(other.path(), small_config(), mlx_model(small_config()));
    return load_model(other.path());
  }();
  for (Role role : {Role::embed_tokens, Role::lm_head}) {
    const Matrix &a = loaded.weights.get({role}), &b = straight.weights.get({role});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data) % 4, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.scales) % 4, 0u);
    std::vector<float> x(128), y(128);
    dequantize_row(a, 299, x.data());
    dequantize_row(b, 299, y.data());
    EXPECT_EQ(x, y);
  }
}

TEST(Load, LockedInMemory) {
  TempDir dir;
  write_model(dir.path(), small_config(), mlx_model(small_config()));
  try {
    EXPECT_EQ(load_model(dir.path(), {.mlock = true}).shape.hidden, 128);
  } catch (const Error& error) {  // the limit of this machine
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_NE(std::string(error.what()).find("ulimit -l"), std::string::npos);
  }
}

}  // namespace
}  // namespace lily
