// The reference back end against logits, hidden states and texts of another implementation.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/reference/reference_backend.h"
#include "model/load.h"
#include "support/drive.h"
#include "support/golden.h"
#include "support/synthetic_model.h"

namespace lily {
namespace {

using plan::Phase;

TEST(ReferenceGolden, T1LogitsAndHiddenStates) {
  const test::SyntheticModel model(test::golden_path("t1/config.json"));
  const int vocab = model->shape.vocab, hidden = model->shape.hidden;
  const SafetensorsFile golden(test::golden_path("t1/golden.safetensors"));
  const auto ids = test::golden_tensor<std::int32_t>(golden, "input_ids");
  const auto truth = test::golden_tensor<float>(golden, "logits");
  const auto layers = test::golden_tensor<float>(golden, "hidden_after_layer");  // [layers, 64, hidden]

  ReferenceBackend backend(model->weights, DType::f32);
  SequenceState state(backend.state_layout());
  std::vector<double> worst;
  const auto logits = test::teacher_forced(backend, state, ids, vocab, {320}, Phase::prefill, [&](int layer, const float* x, int) {
    const std::size_t n = std::size_t(64) * std::size_t(hidden);
    worst.push_back(test::relative_error({x, n}, {layers.data() + std::size_t(layer) * n, n}));
  });
  ASSERT_EQ(worst.size(), std::size_t(model->shape.layers));
  for (double error : worst) EXPECT_LE(error, 1e-3);
  const test::Agreement a = test::compare_logits(truth, logits, vocab);
  EXPECT_LE(a.mean_kl, 1e-6);
  EXPECT_EQ(a.top1, 1.0);
  std::cout << "t1 reference: KL " << a.mean_kl << " top-1 " << a.top1 << "\n";

  // The same limits must notice one row that was not computed: row 100 takes its neighbour's logits.
  auto broken = logits;
  std::copy_n(logits.begin() + 99 * vocab, vocab, broken.begin() + 100 * vocab);
  EXPECT_GT(test::compare_logits(truth, broken, vocab).mean_kl, 1e-6);
}

TEST(ReferenceGolden, T1Greedy) {
  const test::SyntheticModel model(test::golden_path("t1/config.json"));
  const SafetensorsFile golden(test::golden_path("t1/golden.safetensors"));
  const auto all = test::golden_tensor<std::int32_t>(golden, "greedy_prompt_32_then_48");
  ReferenceBackend backend(model->weights, DType::f32);
  EXPECT_EQ(test::greedy(backend, {all.data(), 32}, model->shape.vocab, 48), std::vector<std::int32_t>(all.begin() + 32, all.end()));
}

TEST(ReferenceGolden, R1RealDimensions) {
  const test::SyntheticModel model(test::golden_path("r1/config.json"));
  const int vocab = model->shape.vocab, hidden = model->shape.hidden;
  const SafetensorsFile golden(test::golden_path("r1/golden.safetensors"));
  const auto ids = test::golden_tensor<std::int32_t>(golden, "input_ids");
  EXPECT_EQ(std::vector<int>(ids.begin(), ids.end()), synthetic_token_ids("r1", 96, vocab));
  const auto truth = test::golden_tensor<float>(golden, "logits");
  const auto layers = test::golden_tensor<float>(golden, "hidden_after_layer_last8");  // [layers, 8, hidden]
  ReferenceBackend backend(model->weights, DType::f32);
  SequenceState state(backend.state_layout());
  const auto logits = test::teacher_forced(backend, state, ids, vocab, {96}, Phase::prefill, [&](int layer, const float* x, int) {
    const std::size_t n = std::size_t(8) * std::size_t(hidden);
    EXPECT_LE(test::relative_error({x + 88 * hidden, n}, {layers.data() + std::size_t(layer) * n, n}), 1e-3) << "layer " << layer;
  });
  const double kl = test::compare_logits(truth, logits, vocab).mean_kl;
  std::cout << "r1 reference: KL " << kl << "\n";
  EXPECT_LE(kl, 1e-6);
}

TEST(ReferenceGolden, TinyPerplexity) {
  const LoadedModel model = load_model(std::string(LILY_SOURCE_DIR) + "/models/tiny");
  const SafetensorsFile golden(test::golden_path("tiny/golden.safetensors"));
  const auto ids = test::golden_tensor<std::int32_t>(golden, "input_ids");
  const auto truth = test::golden_tensor<float>(golden, "logits");
  ReferenceBackend backend(model.weights, DType::f32);
  SequenceState state(backend.state_layout());
  const auto logits = test::teacher_forced(backend, state, ids, model.shape.vocab, {192}, Phase::prefill);
  const double perplexity = std::exp(test::mean_nll(logits, ids, model.shape.vocab));
  EXPECT_NEAR(perplexity, std::exp(test::mean_nll(truth, ids, model.shape.vocab)), 5e-4);  // 29.35: four digits
  EXPECT_NEAR(perplexity, 29.3486, 5e-3);
}

TEST(ReferenceGolden, TinyGreedy) {
  const LoadedModel model = load_model(std::string(LILY_SOURCE_DIR) + "/models/tiny");
  std::ifstream in(test::golden_path("tiny/greedy.json"));
  const auto golden = nlohmann::json::parse(in);
  ReferenceBackend backend(model.weights, DType::f32);
  const std::vector<std::int32_t> ends = {8180, 8182};
#if defined(LILY_SANITIZED)
  constexpr std::size_t kEvery = 10;  // slow there: what a sanitizer sees in one case it sees in all
#else
  constexpr std::size_t kEvery = 1;
#endif
  for (std::size_t i = 0; i < golden["cases"].size(); i += kEvery) {
    const auto& c = golden["cases"][i];
    const auto prompt = c["ids"].get<std::vector<std::int32_t>>(), expected = c["greedy_ids"].get<std::vector<std::int32_t>>();
    EXPECT_EQ(test::greedy(backend, prompt, model.shape.vocab, int(expected.size()), ends), expected) << c["prompt"];
  }
}

}  // namespace
}  // namespace lily
