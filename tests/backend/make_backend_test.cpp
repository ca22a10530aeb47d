// Choosing a back end and an instruction set; requests that a back end refuses, and what it leaves untouched then.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "backend/cpu/dispatch.h"
#include "backend/cpu/shape_limits.h"
#include "base/error.h"
#include "support/drive.h"
#include "support/golden.h"
#include "support/synthetic_model.h"

namespace lily {
namespace {

using plan::Phase;

constexpr auto model = test::t1_model;

template <class F>
std::string error_of(ErrorCode code, F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(int(e.code()), int(code)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(MakeBackend, ByName) {
  EXPECT_TRUE(has(make_backend(model()->weights, {.threads = 1})->name(), "cpu ("));
  EXPECT_TRUE(has(make_backend(model()->weights, {.name = "cpu", .threads = 2})->name(), "2 threads"));
  EXPECT_EQ(make_backend(model()->weights, {.name = "reference"})->name(), "reference");
  for (const char* absent : {"cuda", "metal"}) {
    const auto text = error_of(ErrorCode::unsupported, [&] { make_backend(model()->weights, {.name = absent}); });
    EXPECT_TRUE(has(text, absent) && has(text, "cpu")) << text;
  }
  EXPECT_TRUE(
      has(error_of(ErrorCode::invalid_argument, [&] { make_backend(model()->weights, {.name = "gpu"}); }), "'gpu'"));
  for (const char* name : {"cpu", "reference"})
    EXPECT_TRUE(has(error_of(ErrorCode::invalid_argument,
                             [&] { make_backend(model()->weights, {.name = name, .off = {"fused-everything"}}); }),
                    "fused-everything"));
}

TEST(MakeBackend, InstructionSets) {
  const auto isas = available_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(cpu_kernels("").isa, isas[0]);  // the best one
  for (const std::string& isa : isas) {
    EXPECT_EQ(cpu_kernels(isa).isa, isa);
    EXPECT_TRUE(has(make_backend(model()->weights, {.name = "cpu", .threads = 1, .isa = isa})->name(), isa));
  }
  const auto text = error_of(ErrorCode::unsupported, [] { cpu_kernels("sse2"); });
  EXPECT_TRUE(has(text, "sse2") && has(text, isas[0])) << text;
}

// A configuration is a file that comes from anywhere: kernels' scratch has a size.
TEST(CpuShapeLimits, RefusesByNameWhatKernelsHaveNoRoomFor) {
  const ModelShape fits = model()->shape;
  require_cpu_fit(fits);
  const auto refusal = [&](auto change) {
    ModelShape s = fits;
    change(s);
    return error_of(ErrorCode::unsupported, [&] { require_cpu_fit(s); });
  };
  EXPECT_TRUE(has(refusal([](ModelShape& s) { s.hidden = kMostCpuColumns + 64; }), "hidden_size"));
  EXPECT_TRUE(has(refusal([](ModelShape& s) { s.attn_heads = 64, s.head_dim = 512; }), "head_dim"));
  EXPECT_TRUE(has(refusal([](ModelShape& s) { s.gdn_value_heads = 512, s.gdn_value_dim = 128; }), "linear_num_value_heads"));
  EXPECT_TRUE(has(refusal([](ModelShape& s) { s.expert_ffn = 32768; }), "moe_intermediate_size"));
  EXPECT_TRUE(has(refusal([](ModelShape& s) { s.shared_ffn = 32768; }), "shared_expert_intermediate_size"));
  EXPECT_TRUE(has(refusal([](ModelShape& s) { s.gdn_value_heads = 1, s.gdn_key_dim = s.gdn_value_dim = 1024; }), "linear_key_head_dim 1024"));
}

TEST(MakeBackend, ArithmeticIsWhatBitsDependOn) {
  const auto of = [](BackendOptions o) {
    o.threads = std::max(o.threads, 1);
    if (o.name == "auto") o.name = "cpu";
    return make_backend(model()->weights, o)->arithmetic();
  };
  std::set<std::string> all = {of({.name = "reference"}), of({.exact = true}), of({.prefill_activations = plan::Activations::int16}),
                               of({.decode_activations = plan::Activations::int8})};
  std::size_t sets = 0;
  for (const std::string& isa : available_isas()) all.insert(of({.isa = isa})), ++sets;
  EXPECT_EQ(all.size(), 4 + sets);
  EXPECT_EQ(of({}), of({.threads = 2, .chunk = 8}));
  EXPECT_EQ(of({.exact = true}), of({.exact = true, .decode_activations = plan::Activations::int8}));
}

TEST(MakeBackend, WithoutAmxTilesTheVectorRegistersMultiply) {
  if (available_isas()[0] != "avx512amx") GTEST_SKIP() << "this processor has no AMX, or the system does not lend it";
  const auto b = make_backend(model()->weights, {.name = "cpu", .threads = 1});
  EXPECT_TRUE(has(b->name(), "avx512amx")) << b->name();
  b->switch_off({"amx-tiles"});
  EXPECT_TRUE(has(b->name(), "avx512vnni")) << b->name();
  b->switch_off({});
  EXPECT_TRUE(has(b->name(), "avx512amx")) << b->name();
}

TEST(CpuBackend, RefusesAndLeavesTheConversationAlone) {
  const auto backend = make_backend(model()->weights, {.name = "cpu", .threads = 1, .chunk = 8});
  const int vocab = model()->shape.vocab;
  SequenceState state(backend->state_layout());
  std::vector<float> logits(8 * std::size_t(vocab));
  const std::vector<std::int32_t> good = {1, 2, 3};
  test::teacher_forced(*backend, state, good, vocab, {3}, Phase::prefill);
  const RecurrentState before = state.recurrent;
  auto refused = [&](std::vector<std::int32_t> ids, std::vector<std::int32_t> wanted, Phase phase) {
    Segment s{.state = &state, .ids = ids, .logits_of = wanted};
    const auto text = error_of(ErrorCode::invalid_argument, [&] { backend->run(phase, {&s, 1}, logits.data()); });
    EXPECT_EQ(state.length, 3);
    EXPECT_EQ(state.recurrent.recurrent, before.recurrent);
    return text;
  };
  EXPECT_TRUE(has(refused({5, vocab}, {}, Phase::prefill), std::to_string(vocab)));
  EXPECT_TRUE(has(refused({-1}, {}, Phase::decode), "-1"));
  EXPECT_TRUE(has(refused(std::vector<std::int32_t>(9, 1), {}, Phase::prefill), "9"));
  refused({1, 2}, {1, 0}, Phase::prefill);
  refused({1, 2}, {2}, Phase::prefill);
  refused({1, 2}, {}, Phase::decode);
  refused({}, {}, Phase::prefill);
  EXPECT_THROW(backend->run(Phase::prefill, {}, nullptr), Error);
  // Still usable.
  test::teacher_forced(*backend, state, good, vocab, {1}, Phase::decode);
  EXPECT_EQ(state.length, 6);
}

TEST(CpuBackend, LayerHookSeesEveryLayerAndChangesNothing) {
  const auto backend = make_backend(model()->weights, {.name = "cpu", .threads = 2, .exact = true});
  const std::vector<std::int32_t> ids = {5, 6, 7, 8, 9};
  const int vocab = model()->shape.vocab;
  SequenceState with(backend->state_layout()), without(backend->state_layout());
  std::vector<int> layers;
  const auto a =
      test::teacher_forced(*backend, with, ids, vocab, {5}, Phase::prefill, [&](int layer, const float* x, int rows) {
        layers.push_back(layer);
        EXPECT_EQ(rows, 5);
        EXPECT_TRUE(std::isfinite(x[0]));
      });
  EXPECT_EQ(a, test::teacher_forced(*backend, without, ids, vocab, {5}, Phase::prefill));
  std::vector<int> expected(std::size_t(model()->shape.layers));
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(layers, expected);
}

TEST(CpuBackend, FusionsChangeNoMeaning) {
  const std::vector<std::int32_t> ids = {15, 6, 70, 8, 9, 1, 300, 12};
  const int vocab = model()->shape.vocab;
  const std::vector<std::string> all = {"fused-expert-in", "fused-expert-out", "fused-linear-add"};
  for (Phase phase : {Phase::prefill, Phase::decode}) {
    const auto on = make_backend(model()->weights, {.name = "cpu", .threads = 2, .exact = true});
    const auto off = make_backend(model()->weights, {.name = "cpu", .threads = 2, .exact = true, .off = all});
    EXPECT_GT(off->plan(phase).ops.size(), on->plan(phase).ops.size());
    SequenceState a(on->state_layout()), b(off->state_layout());
    const std::vector<int> split = {phase == Phase::decode ? 1 : 8};
    const auto x = test::teacher_forced(*on, a, ids, vocab, split, phase),
               y = test::teacher_forced(*off, b, ids, vocab, split, phase);
    EXPECT_LE(test::relative_error(x, y), 2e-5);  // float32 rounding: see CpuDrift
  }
}

}  // namespace
}  // namespace lily
