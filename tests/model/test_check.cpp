// check_finite: one value that is not finite, wherever it lies, is found and named; loading alone sees it in small
// tensors.
#include <gtest/gtest.h>

#include "model/check.h"
#include "model/fixture.h"

namespace lily {
namespace {

/// What loading or check_finite say of `model`, "" when all is finite.
std::string check_error(const nlohmann::json& config, const TestModel& model) {
  TempDir dir;
  write_model(dir.path(), config, model);
  try {
    const LoadedModel loaded = load_model(dir.path());
    check_finite(loaded.weights, "the model", false);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void set_half(TestTensor& tensor, std::size_t index, std::uint16_t bits) {
  std::memcpy(tensor.bytes.data() + 2 * index, &bits, 2);
}

TEST(Check, OneValueOfOneExpert) {
  const auto config = small_config();
  const TestModel good = mlx_model(config);
  EXPECT_EQ(check_error(config, good), "");
  for (const char* part : {"scales", "biases"})
    for (const std::uint16_t bits : {0x7fc0, 0x7f80, 0xff80}) {  // NaN and both infinities in bfloat16
      TestModel model = good;
      const std::string name = std::string("layers.2.mlp.switch_mlp.up_proj.") + part;
      TestTensor& tensor = tensor_of(model, "language_model.model." + name);
      ASSERT_EQ(tensor.shape, (std::vector<std::int64_t>{4, 128, 2}));
      set_half(tensor, (3 * 128 + 7) * 2 + 1, bits);
      const std::string said = check_error(config, model);
      EXPECT_NE(said.find("the model: tensor " + name), said.npos) << said;
      EXPECT_NE(said.find("expert 3, row 7, column 1"), said.npos) << said;
    }
}

TEST(Check, FirstAndLastValueOfEveryMatrix) {
  const auto config = small_config();
  const TestModel good = mlx_model(config);
  for (const TestTensor& t : good) {
    if (!t.name.ends_with(".scales") && !t.name.ends_with(".biases")) continue;
    for (const std::size_t at : {std::size_t(0), t.bytes.size() / 2 - 1}) {
      TestModel model = good;
      set_half(tensor_of(model, t.name), at, 0x7fc0);
      EXPECT_NE(check_error(config, model), "") << t.name << " " << at;
    }
  }
}

TEST(Check, LoadingReadsTheSmallMatrices) {
  const auto config = small_config();
  const TestModel good = mlx_model(config);
  for (const char* module : {"layers.1.linear_attn.in_proj_a", "layers.1.linear_attn.in_proj_b", "layers.1.mlp.gate",
                             "layers.1.mlp.shared_expert_gate"})
    for (const char* part : {".scales", ".biases"}) {
      TestModel model = good;
      TestTensor& t = tensor_of(model, std::string("language_model.model.") + module + part);
      set_half(t, t.bytes.size() / 2 - 1, 0x7f80);
      TempDir dir;
      write_model(dir.path(), config, model);
      try {
        load_model(dir.path());
        ADD_FAILURE() << module << part;
      } catch (const Error& error) {
        const std::string said = error.what();
        EXPECT_NE(said.find(std::string("tensor ") + module + part + ": expected finite values"), said.npos) << said;
      }
    }
}

// The other types that scales may have: the last value of a matrix, found as what it is and where it is.
TEST(Check, Float32AndFloat16) {
  const auto config = small_config();
  const TestModel good = mlx_model(config);
  const std::string module = "language_model.model.layers.2.mlp.switch_mlp.up_proj";
  for (const DType type : {DType::f32, DType::f16}) {
    TestModel finite = good;
    for (const char* part : {".scales", ".biases"}) {
      TestTensor& t = tensor_of(finite, module + part);
      const std::size_t values = t.bytes.size() / 2;
      t.dtype = type;
      t.bytes.assign(values * dtype_bytes(type), '\0');
    }
    EXPECT_EQ(check_error(config, finite), "");
    TestModel model = finite;
    auto& bytes = tensor_of(model, module + ".biases").bytes;
    const std::uint32_t nan = type == DType::f32 ? 0x7fc00000u : 0x7e00u;
    std::memcpy(bytes.data() + bytes.size() - dtype_bytes(type), &nan, dtype_bytes(type));
    const std::string said = check_error(config, model);
    EXPECT_NE(said.find("up_proj.biases"), said.npos) << said;
    EXPECT_NE(said.find("expert 3, row 127, column 1"), said.npos) << said;
  }
}

TEST(Check, PlainMatrices) {
  const auto config = raw_config();
  TestModel model = raw_model(config);
  EXPECT_EQ(check_error(config, model), "");
  set_half(tensor_of(model, "model.language_model.layers.1.mlp.experts.gate_up_proj"), (2 * 256 + 128 + 5) * 128 + 9,
           0x7fc0);
  const std::string said = check_error(config, model);
  EXPECT_NE(said.find("layers.1.mlp.switch_mlp.up_proj"), said.npos) << said;
  EXPECT_NE(said.find("expert 2, row 5, column 9"), said.npos) << said;
}

}  // namespace
}  // namespace lily
