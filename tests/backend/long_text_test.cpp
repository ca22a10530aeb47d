// Text and lengths beyond the goldens': every prompt length, a long text in the default arithmetics against the exact one, and
// thousands of decode steps against the reference.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "backend/reference/reference_backend.h"
#include "support/drive.h"
#include "support/golden.h"
#include "support/synthetic_model.h"

namespace lily {
namespace {

using plan::Activations;
using plan::Phase;

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

bool same_state(const SequenceState& a, const SequenceState& b) {
  return same_bits(a.recurrent.recurrent, b.recurrent.recurrent) && same_bits(a.recurrent.conv, b.recurrent.conv);
}

// A prompt of any length gives the bits that the same tokens give in any other cut: its last logits are those of that row in one
// long pass, its state is that of the tokens fed in random pieces.
TEST(CpuBits, EveryLengthTo300) {
  const test::SyntheticModel model(test::golden_path("t1/config.json"));
  const int vocab = model->shape.vocab, n = 300;
  const auto ids = synthetic_token_ids("every length", n, vocab);
  const auto backend = make_backend(model->weights, {.name = "cpu", .threads = 2});
  SequenceState whole(backend->state_layout());
  const auto rows = test::teacher_forced(*backend, whole, ids, vocab, {n}, Phase::prefill);
  std::mt19937 random(300);
  int wrong = 0;
  for (int length = 1; length <= n; ++length) {
    const std::span<const std::int32_t> prompt(ids.data(), std::size_t(length));
    std::vector<int> pieces;
    for (int left = length; left > 0; left -= pieces.back()) pieces.push_back(1 + int(random() % unsigned(std::min(left, 90))));
    SequenceState once(backend->state_layout()), cut(backend->state_layout());
    const auto logits = test::teacher_forced(*backend, once, prompt, vocab, {length}, Phase::prefill);
    test::teacher_forced(*backend, cut, prompt, vocab, pieces, Phase::prefill);
    const auto last = std::span(logits).last(std::size_t(vocab));
    if (!same_bits(last, std::span(rows).subspan(std::size_t(length - 1) * std::size_t(vocab), std::size_t(vocab))) || !same_state(once, cut)) {
      ADD_FAILURE() << "length " << length;
      if (++wrong == 5) break;
    }
  }
  // The comparison notices a prompt that lacks its first token.
  SequenceState shorter(backend->state_layout());
  test::teacher_forced(*backend, shorter, std::span(ids).subspan(1), vocab, {n}, Phase::prefill);
  EXPECT_FALSE(same_state(whole, shorter));
}

struct Tiny {
  LoadedModel model = load_model(std::string(LILY_SOURCE_DIR) + "/models/tiny");
  std::vector<std::int32_t> ids;
  explicit Tiny(std::size_t n) {
    std::ifstream in(std::string(LILY_TEST_DATA) + "/gate/tiny_ids.json");
    ids = nlohmann::json::parse(in).get<std::vector<std::int32_t>>();
    while (ids.size() < n) ids.insert(ids.end(), ids.begin(), ids.begin() + std::ptrdiff_t(std::min(ids.size(), n - ids.size())));
    ids.resize(n);
  }
  std::vector<float> run(BackendOptions options, Phase phase) const {
    options.name = "cpu";
    options.threads = 2;
    const auto backend = make_backend(model.weights, options);
    SequenceState state(backend->state_layout());
    return test::teacher_forced(*backend, state, ids, model.shape.vocab, {phase == Phase::decode ? 1 : 512}, phase);
  }
};

// The limits of the 192-token golden hold on a text ten times as long, against the exact arithmetic.
TEST(CpuGate, LongTextInDefaultArithmetic) {
  const Tiny tiny(2048);
  const int vocab = tiny.model.shape.vocab;
  const auto exact = tiny.run({.exact = true}, Phase::prefill);
  const double truth = test::mean_nll(exact, tiny.ids, vocab);
  auto check = [&](const char* what, const BackendOptions& options, Phase phase, double within, double top1) {
    const auto logits = tiny.run(options, phase);
    const auto a = test::compare_logits(exact, logits, vocab);
    const double ratio = std::exp(test::mean_nll(logits, tiny.ids, vocab) - truth);
    std::cout << "2048 tokens, " << what << ": perplexity ratio " << ratio << " KL " << a.mean_kl << " top-1 " << a.top1 << "\n";
    EXPECT_NEAR(ratio, 1, within) << what;
    EXPECT_GE(a.top1, top1) << what;
  };
  check("decode", {}, Phase::decode, 2e-3, 0.97);
  check("prefill int8", {}, Phase::prefill, 1e-2, 0.96);
  check("prefill bf16", {.prefill_activations = Activations::int16}, Phase::prefill, 2e-3, 0.97);
  check("decode int8", {.decode_activations = Activations::int8}, Phase::decode, 1e-2, 0.96);
}

TEST(ReferenceGolden, DecodeAgreesWithPrefill) {
  const test::SyntheticModel model(test::golden_path("t1/config.json"));
  const auto ids = synthetic_token_ids("one by one", 64, model->shape.vocab);
  ReferenceBackend backend(model->weights, DType::f32);
  SequenceState a(backend.state_layout()), b(backend.state_layout());
  const auto prefill = test::teacher_forced(backend, a, ids, model->shape.vocab, {64}, Phase::prefill);
  const auto decode = test::teacher_forced(backend, b, ids, model->shape.vocab, {1}, Phase::decode);
  EXPECT_LE(test::relative_error(decode, prefill), 1e-5);
}

// 4,096 decode steps, against the reference reading the same tokens: the distance at the end is that of the beginning.
TEST(LongCpuDrift, FourThousandDecodeSteps) {
  const Tiny tiny(4096);
  const int vocab = tiny.model.shape.vocab;
  ReferenceBackend reference(tiny.model.weights, DType::f32);
  SequenceState state(reference.state_layout());
  const auto truth = test::teacher_forced(reference, state, tiny.ids, vocab, {512}, Phase::prefill);
  for (const bool exact : {true, false}) {
    const auto logits = tiny.run({.exact = exact}, Phase::decode);
    auto part = [&](int first) {
      const std::size_t at = std::size_t(first) * std::size_t(vocab), n = std::size_t(1024) * std::size_t(vocab);
      return test::compare_logits({truth.data() + at, n}, {logits.data() + at, n}, vocab).mean_kl;
    };
    const double first = part(0), last = part(3072);
    std::cout << (exact ? "exact" : "default") << ": KL of steps 0-1023 " << first << ", 3072-4095 " << last << "\n";
    EXPECT_LE(last, exact ? 1e-6 : 1e-3);
    EXPECT_LE(last, 3 * first + 1e-9);
  }
}

// The full-size model, where LILY_FULL_MODEL names a synthetic checkpoint of it (`lily synth DIR --preset qwen3.6-35b-a3b`).
TEST(LongCpuGolden, FullSizeExact) {
  const char* dir = std::getenv("LILY_FULL_MODEL");
  if (!dir) GTEST_SKIP() << "LILY_FULL_MODEL names no checkpoint";
  const LoadedModel model = load_model(dir);
  const SafetensorsFile golden(test::golden_path("f1/golden.safetensors"));
  const auto ids = test::golden_tensor<std::int32_t>(golden, "input_ids");
  const auto top_ids = test::golden_tensor<std::int32_t>(golden, "top_ids");
  const auto top_logits = test::golden_tensor<float>(golden, "top_logits");
  auto kl = [&](BackendOptions options, Phase phase) {
    options.name = "cpu";
    const auto backend = make_backend(model.weights, options);
    SequenceState state(backend->state_layout());
    const auto logits = test::teacher_forced(*backend, state, ids, model.shape.vocab, {phase == Phase::decode ? 1 : 64}, phase);
    std::vector<float> top(top_ids.size());
    for (std::size_t i = 0; i < top.size(); ++i) top[i] = logits[i / 32 * std::size_t(model.shape.vocab) + std::size_t(top_ids[i])];
    return test::compare_logits(top_logits, top, 32).mean_kl;
  };
  const double exact = kl({.exact = true}, Phase::prefill);
  std::cout << "KL over the golden's top 32: exact " << exact << ", prefill int8 " << kl({}, Phase::prefill) << ", prefill bf16 "
            << kl({.prefill_activations = Activations::int16}, Phase::prefill) << ", decode " << kl({}, Phase::decode) << "\n";
  EXPECT_LE(exact, 1e-5);
}

}  // namespace
}  // namespace lily
