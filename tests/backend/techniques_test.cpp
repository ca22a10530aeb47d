// Every technique, switched off: the same meaning, the same bits where its row says so, and something else that runs.
#include "ops/techniques.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "support/drive.h"
#include "support/golden.h"
#include "support/synthetic_model.h"

namespace lily {
namespace {

using plan::Phase;

constexpr auto model = test::t1_model;

/// Logits of 70 tokens (more than a block of the scan) in one pass, or of 9 in decode.
std::vector<float> logits(Phase phase, bool exact, std::vector<std::string> off) {
  const auto backend =
      make_backend(model()->weights, {.name = "cpu", .threads = 2, .exact = exact, .off = std::move(off)});
  const int n = phase == Phase::prefill ? 70 : 9;
  std::vector<std::int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back((i * 37 + i * i % 19) % model()->shape.vocab);
  SequenceState state(backend->state_layout());
  return test::teacher_forced(*backend, state, ids, model()->shape.vocab, {phase == Phase::prefill ? n : 1}, phase);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Techniques, SwitchedOffOneByOne) {
  for (Phase phase : {Phase::prefill, Phase::decode})
    for (bool exact : {false, true}) {
      const std::vector<float> all_on = logits(phase, exact, {});
      for (const ops::Technique& t : ops::techniques("cpu")) {
        const std::vector<float> off = logits(phase, exact, {t.name});
        const bool works_here = phase == Phase::prefill ? t.prefill : t.decode;
        if (t.same_bits || !works_here) {
          EXPECT_TRUE(same_bits(all_on, off)) << t.name << (exact ? ", exact" : "");
        }
        // Float32 sums in another order, through integer products that may round to the next code (CpuGolden's
        // figures).
        EXPECT_LE(test::relative_error(off, all_on), exact ? 2e-5 : 0.1) << t.name;
      }
    }
}

TEST(Techniques, ANameIsAFieldOrAFusion) {
  const auto choice = ops::without("cpu", {"register-scan", "fused-linear-add"});
  EXPECT_FALSE(choice.kernels.register_scan);
  EXPECT_TRUE(choice.kernels.grouped_experts);
  EXPECT_EQ(choice.fusions_off, std::vector<std::string>{"fused-linear-add"});
  EXPECT_TRUE(ops::without("cpu", {}).kernels.register_scan);
  EXPECT_TRUE(ops::techniques("reference").empty());
  // No two names for one field: a row that named its neighbour's would switch off something else without a word.
  const auto all = ops::techniques("cpu");
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_FALSE(all[i].field && all[i].field == all[j].field) << all[i].name << " and " << all[j].name;
  try {
    ops::without("cpu", {"fused-everything"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    for (const ops::Technique& t : ops::techniques("cpu"))
      EXPECT_NE(std::string(e.what()).find(t.name), std::string::npos);
  }
}

}  // namespace
}  // namespace lily
