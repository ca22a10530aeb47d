// The CPU back end against logits of another implementation: exact, default decode and default prefill.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/drive.h"
#include "support/golden.h"
#include "support/synthetic_model.h"

namespace lily {
namespace {

using plan::Activations;
using plan::Phase;

struct Golden {
  std::vector<std::int32_t> ids;
  std::vector<float> logits;
};
Golden golden(const std::string& name) {
  const SafetensorsFile file(test::golden_path(name + "/golden.safetensors"));
  return {test::golden_tensor<std::int32_t>(file, "input_ids"), test::golden_tensor<float>(file, "logits")};
}

std::vector<float> run(const Weights& weights, const Golden& g, Phase phase, BackendOptions options) {
  options.name = "cpu";
  options.threads = 2;
  const auto backend = make_backend(weights, options);
  SequenceState state(backend->state_layout());
  return test::teacher_forced(*backend, state, g.ids, weights.shape().vocab, {phase == Phase::decode ? 1 : 512}, phase);
}

std::string tiny_dir() { return std::string(LILY_SOURCE_DIR) + "/models/tiny"; }

TEST(CpuGolden, ExactT1) {
  const test::SyntheticModel model(test::golden_path("t1/config.json"));
  const Golden g = golden("t1");
  for (Phase phase : {Phase::prefill, Phase::decode}) {
    const auto a = test::compare_logits(g.logits, run(model->weights, g, phase, {.exact = true}), model->shape.vocab);
    std::cout << "t1 exact: KL " << a.mean_kl << " top-1 " << a.top1 << "\n";
    EXPECT_LE(a.mean_kl, 1e-5);
  }
}

TEST(CpuGolden, R1) {
  const test::SyntheticModel model(test::golden_path("r1/config.json"));
  const Golden g = golden("r1");
  const int vocab = model->shape.vocab;
  auto check = [&](const char* what, Phase phase, const BackendOptions& o, double kl, double top1) {
    const auto a = test::compare_logits(g.logits, run(model->weights, g, phase, o), vocab);
    std::cout << "r1 " << what << ": KL " << a.mean_kl << " top-1 " << a.top1 << "\n";
    EXPECT_LE(a.mean_kl, kl) << what;
    EXPECT_GE(a.top1, top1) << what;
  };
  check("exact prefill", Phase::prefill, {.exact = true}, 1e-5, 0.99);
  check("exact decode", Phase::decode, {.exact = true}, 1e-5, 0.99);
  check("decode", Phase::decode, {}, 5e-4, 0.97);
  check("prefill int8", Phase::prefill, {}, 5e-3, 0.90);
  check("prefill bf16", Phase::prefill, {.prefill_activations = Activations::int16}, 5e-4, 0.97);
  check("decode int8", Phase::decode, {.decode_activations = Activations::int8}, 5e-3, 0.90);
}

TEST(CpuGolden, TinyPerplexity) {
  const LoadedModel model = load_model(tiny_dir());
  const Golden g = golden("tiny");
  const int vocab = model.shape.vocab;
  const double truth = std::exp(test::mean_nll(g.logits, g.ids, vocab));
  auto check = [&](const char* what, Phase phase, const BackendOptions& o, double within, double top1) {
    const auto logits = run(model.weights, g, phase, o);
    const double ratio = std::exp(test::mean_nll(logits, g.ids, vocab)) / truth;
    const auto a = test::compare_logits(g.logits, logits, vocab);
    std::cout << "tiny " << what << ": perplexity ratio " << ratio << " KL " << a.mean_kl << " top-1 " << a.top1 << "\n";
    EXPECT_NEAR(ratio, 1, within) << what;
    EXPECT_GE(a.top1, top1) << what;
  };
  check("exact prefill", Phase::prefill, {.exact = true}, 2e-4, 0.99);
  check("exact decode", Phase::decode, {.exact = true}, 2e-4, 0.99);
  check("decode", Phase::decode, {}, 2e-3, 0.96);
  check("prefill int8", Phase::prefill, {}, 1e-2, 0.96);
  check("prefill bf16", Phase::prefill, {.prefill_activations = Activations::int16}, 2e-3, 0.96);
  check("decode int8", Phase::decode, {.decode_activations = Activations::int8}, 2e-2, 0.96);  // 192 tokens; CpuGate has 2,048
}

TEST(CpuGolden, TinyGreedy) {
  const LoadedModel model = load_model(tiny_dir());
  std::ifstream in(test::golden_path("tiny/greedy.json"));
  const auto golden = nlohmann::json::parse(in);
  const auto backend = make_backend(model.weights, {.name = "cpu", .threads = 2});
  const std::vector<std::int32_t> ends = {8180, 8182};
  int same = 0, total = 0;
  for (const auto& c : golden["cases"]) {
    const auto expected = c["greedy_ids"].get<std::vector<std::int32_t>>();
    const auto got = test::greedy(*backend, c["ids"].get<std::vector<std::int32_t>>(), model.shape.vocab, int(expected.size()), ends);
    ++total;
    if (got == expected) {
      ++same;
      continue;
    }
    // A run may leave the golden only where the golden itself was nearly undecided.
    EXPECT_LT(c["min_margin"].get<double>(), 0.15) << c["prompt"];
  }
  std::cout << "tiny greedy: " << same << " of " << total << " identical\n";
  EXPECT_GE(same, total * 3 / 4);
}

}  // namespace
}  // namespace lily
