// The bundled model loads, and its values are what the file says.
#include <gtest/gtest.h>

#include <cmath>

#include "model/load.h"

namespace lily {
namespace {

TEST(LoadBundled, TinyModel) {
  const LoadedModel model = load_model(LILY_SOURCE_DIR "/models/tiny");
  EXPECT_EQ(model.shape.hidden, 384);
  EXPECT_EQ(model.shape.layers, 12);
  EXPECT_EQ(model.shape.rotary_dim, 16);
  EXPECT_EQ(model.shape.count(LayerKind::full_attention), 3);
  EXPECT_FALSE(model.report.raw);
  for (const std::string& warning : model.report.warnings) ADD_FAILURE() << warning;
  const Matrix& router = model.weights.get({Role::router, 3});
  EXPECT_EQ(router.bits, 8);
  EXPECT_EQ(router.group, 64);
  const Matrix& down = model.weights.get({Role::expert_down_proj, 3});
  EXPECT_EQ(down.count, 16);
  EXPECT_EQ(down.rows, 384);
  EXPECT_EQ(down.cols, 128);
  EXPECT_EQ(down.bits, 4);
  EXPECT_FALSE(model.weights.has({Role::q_proj, 0}));
  EXPECT_TRUE(model.weights.has({Role::q_proj, 3}));
  std::vector<float> row(128);
  dequantize_row(down.at(15), 383, row.data());
  for (float value : row) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace lily
