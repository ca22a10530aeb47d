// What is run, in which order, and from which state: with a back end whose logits depend on every token of both kinds
// of state.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "bench/bench.h"
#include "bench/cost.h"
#include "engine/fake_backend.h"
#include "model/load.h"
#include "plan/compile.h"
#include "plan/cost.h"
#include "support/golden.h"
#include "support/synthetic_model.h"

namespace lily::bench {
namespace {

using plan::Phase;

/// Counts what it is asked for; its limits are another figure each time.
class Recorder : public fake::Backend {
 public:
  using fake::Backend::Backend;
  std::vector<ops::Technique> techniques() const override {
    return {{"in-prefill", true, false, true, "…", nullptr}, {"in-both", true, true, true, "…", nullptr}};
  }
  void switch_off(const std::vector<std::string>& names) override { off = names.empty() ? "" : names[0]; }
  void time_stages(StageTimes* times) override { stage_times = times; }
  MachineLimits measure_limits() override {
    return {.read_bytes_per_s = 1e9 * double(1 + limits++ % 3), .int8_ops_per_s = 1e12};
  }
  void run(Phase phase, std::span<Segment> segments, float* logits, const LayerHook& hook) override {
    runs.push_back({phase, segments[0].state->length, int(segments[0].ids.size()), off});
    for (std::int32_t id : segments[0].ids) ids.insert(id);
    if (stage_times) (*stage_times)["here"] += 3, (*stage_times)["there"] += 1;
    fake::Backend::run(phase, segments, logits, hook);
  }
  struct Run {
    Phase phase;
    std::int64_t position;
    int rows;
    std::string off;
  };
  std::vector<Run> runs;
  std::set<std::int32_t> ids;
  std::string off;
  StageTimes* stage_times = nullptr;
  int limits = 0;
};

struct Bed {
  explicit Bed(int window = 4096) : weights(fake::shape(window)) {}
  Report measured(const Options& options) {
    Report report;
    measure(backend, weights, options, report);
    return report;
  }
  const Row& find(const Report& r, Phase phase, int n, const std::string& ablated = "") {
    for (const Row& row : r.rows)
      if (row.phase == phase && row.n == n && row.ablated == ablated) return row;
    throw std::runtime_error("no such row");
  }
  Recorder backend{64};
  Weights weights;
};

TEST(Measure, StagesAreTimedInARunOfTheirOwn) {
  Bed bed;
  const Options options{.prefill = {100}, .decode = {100}, .reps = 2, .steps = 5, .ablate = {"in-both"}};
  const std::size_t without = (bed.measured(options), bed.backend.runs.size());
  Bed again;
  Options staged = options;
  staged.stages = true;
  const Report r = again.measured(staged);
  EXPECT_EQ(again.backend.runs.size(), without + 2 + 5);  // two passes of the prompt, five steps
  EXPECT_EQ(again.backend.stage_times, nullptr);
  for (const Row& row : r.rows) {
    if (row.ablated.empty()) EXPECT_EQ(row.stages, (StageTimes{{"here", 0.75}, {"there", 0.25}}));
    else EXPECT_TRUE(row.stages.empty());
  }
}

TEST(Measure, RowsAscendEachOnceAndHashesRepeat) {
  Bed bed;
  const Report r = bed.measured({.prefill = {200, 100, 200}, .decode = {100, 300}, .reps = 3, .steps = 5});
  std::vector<std::pair<Phase, int>> order;
  for (const Row& row : r.rows) order.push_back({row.phase, row.n});
  EXPECT_EQ(order, (std::vector<std::pair<Phase, int>>{
                       {Phase::prefill, 100}, {Phase::decode, 100}, {Phase::prefill, 200}, {Phase::decode, 300}}));
  for (const Row& row : r.rows) {
    EXPECT_TRUE(row.same_hash);
    EXPECT_EQ(row.reps, 3);
    EXPECT_LE(row.tok_s.min, row.tok_s.median);
    EXPECT_LE(row.tok_s.median, row.tok_s.max);
    EXPECT_GT(row.tok_s.min, 0);
  }
  EXPECT_NE(r.rows[0].logits_hash, r.rows[2].logits_hash);
  EXPECT_GT(bed.backend.ids.size(), 50u);  // pseudo-random tokens of a vocabulary of 101
  EXPECT_EQ(r.read_bytes_per_s, 2e9);      // the median of 1, 2 and 3
}

// A decode row's logits are those of a conversation that read its context and then the same tokens, whatever was
// measured before.
TEST(Measure, DecodeGoesOnFromTheStateThatItSays) {
  Bed alone, after;
  const Options only = {.decode = {150}, .reps = 1, .steps = 7};
  const std::string truth = alone.measured(only).rows[0].logits_hash;
  const Report r = after.measured({.prefill = {100, 150}, .decode = {50, 100, 150}, .reps = 2, .steps = 7});
  EXPECT_EQ(after.find(r, Phase::decode, 150).logits_hash, truth);
  EXPECT_NE(after.find(r, Phase::decode, 100).logits_hash, truth);
  EXPECT_NE(alone.measured({.decode = {150}, .reps = 1, .steps = 6}).rows[0].logits_hash, truth);
}

TEST(Measure, AContextIsReadOnceAndOnlyFromWhereTheLastOneEnded) {
  Bed bed;
  bed.measured({.decode = {640, 1280, 1920}, .reps = 4, .steps = 2});
  std::int64_t read = 0;
  for (const auto& run : bed.backend.runs)
    if (run.phase == Phase::prefill && run.rows > 1) read += run.rows;
  EXPECT_EQ(read, 1920 + 2 * 64);  // … and the calibration, twice a pass
}

// In the passes that a session makes (next_pass): the fewest, of nearly equal length.
TEST(Measure, PrefillRunsAreWholeAndBeginEmpty) {
  Bed bed;
  bed.measured({.prefill = {151}, .reps = 3});
  std::vector<int> sizes;
  for (std::size_t i = bed.backend.runs.size() - 9; i < bed.backend.runs.size(); ++i)
    sizes.push_back(bed.backend.runs[i].rows);
  EXPECT_EQ(sizes, (std::vector<int>{51, 50, 50, 51, 50, 50, 51, 50, 50}));
}

TEST(Measure, ContendersTakeTurnsAndTheOrderMovesOn) {
  Bed bed;
  const Report r = bed.measured({.prefill = {10}, .decode = {10}, .reps = 3, .steps = 4, .ablate = {"all"}});
  std::vector<std::string> order;
  for (const auto& run : bed.backend.runs)
    if (run.phase == Phase::prefill && run.rows == 10) order.push_back(run.off);
  order.erase(order.begin(), order.end() - 9);  // the repetitions, not what warms up
  EXPECT_EQ(order, (std::vector<std::string>{"", "in-prefill", "in-both", "in-prefill", "in-both", "", "in-both", "",
                                             "in-prefill"}));
  EXPECT_EQ(r.rows.size(), 5u);  // prefill: plain and two; decode: plain and one
  EXPECT_TRUE(bed.find(r, Phase::decode, 10, "in-both").speedup.has_value());
  EXPECT_EQ(bed.find(r, Phase::prefill, 10, "in-prefill").logits_hash, bed.find(r, Phase::prefill, 10).logits_hash);
  EXPECT_EQ(bed.backend.off, "");        // left as it was found
  EXPECT_GE(bed.backend.limits, 5 * 3);  // between all runs
}

TEST(Measure, WhatDoesNotFitIsSkippedWithAReason) {
  Bed bed(512);
  Options o{.prefill = {512, 513}, .decode = {480, 481}, .reps = 1, .steps = 32};
  Report r = bed.measured(o);
  ASSERT_EQ(r.rows.size(), 2u);
  ASSERT_EQ(r.skipped.size(), 2u);
  EXPECT_EQ(r.skipped[0].n, 481);
  EXPECT_NE(r.skipped[1].why.find("512"), std::string::npos);
  o.memory = bed.weights.bytes() + state_bytes(bed.backend.state_layout(), 256) + 64;
  o.prefill = {256, 257};
  o.decode = {};
  r = bed.measured(o);
  ASSERT_EQ(r.skipped.size(), 1u);
  EXPECT_EQ(r.skipped[0].n, 257);
  EXPECT_NE(r.skipped[0].why.find("memory"), std::string::npos);
}

TEST(Measure, UnknownTechniquesAreRefusedWithTheListOfThoseThereAre) {
  Bed bed;
  try {
    bed.measured({.prefill = {10}, .ablate = {"in-both", "nothing"}});
    FAIL();
  } catch (const Error& e) {
    for (const char* part : {"--ablate nothing", "in-prefill", "in-both", "all"})
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << part;
  }
  EXPECT_TRUE(bed.backend.runs.empty());
}

TEST(Measure, APeerThatFailsLaterIsSkippedAndAtOnceIsAnError) {
  Bed bed;
  const Report r = bed.measured({.prefill = {10, 20}, .reps = 2, .peer = "test {n} = 10 && echo 3 tok/s"});
  EXPECT_EQ(bed.find(r, Phase::prefill, 10).peer->tok_s.median, 3);
  EXPECT_FALSE(bed.find(r, Phase::prefill, 20).peer.has_value());
  ASSERT_EQ(r.skipped.size(), 1u);
  EXPECT_NE(r.skipped[0].why.find("--peer"), std::string::npos);
  EXPECT_THROW(bed.measured({.prefill = {20}, .peer = "exit {n}"}), Error);
}

TEST(Work, CountsWeightsStateAndIntegerOperations) {
  const test::SyntheticModel model(test::golden_path("t1/config.json"));
  const auto backend = make_backend(model->weights, {.name = "cpu", .threads = 1, .chunk = 64});
  const ModelShape& s = model->shape;
  const Work step = decode_work(*backend, model->weights, 100, 1),
             later = decode_work(*backend, model->weights, 101, 1);
  // One more token in the cache: one more row of keys and of values in each attention layer, read once for all query
  // heads.
  EXPECT_NEAR(later.bytes - step.bytes, s.count(LayerKind::full_attention) * 2.0 * s.kv_width() * 2, 1e-3);
  EXPECT_DOUBLE_EQ(decode_work(*backend, model->weights, 100, 3).bytes, later.bytes);
  // k of the experts, and of the table of embeddings one row: far below the whole model.
  EXPECT_LT(step.bytes, 0.8 * double(model->weights.bytes()));
  // Decode's inputs have two int8 terms, prefill's have one, the products that steer aside.
  const Work one = prefill_work(*backend, model->weights, 1);
  EXPECT_GT(step.int8_ops, 1.05 * one.int8_ops);
  EXPECT_LE(step.int8_ops, 2 * one.int8_ops);
  // Passes share the weights among their tokens: 64 tokens in one pass, 65 in two.
  const Work pass = prefill_work(*backend, model->weights, 64), two = prefill_work(*backend, model->weights, 65);
  EXPECT_LT(64 * pass.bytes, 65 * two.bytes);
  EXPECT_LT(pass.bytes, one.bytes / 4);
  EXPECT_DOUBLE_EQ(limit_seconds({.bytes = 100, .int8_ops = 40}, {.read_bytes_per_s = 50, .int8_ops_per_s = 40}), 2);
  EXPECT_DOUBLE_EQ(limit_seconds({.bytes = 100, .int8_ops = 400}, {.read_bytes_per_s = 50, .int8_ops_per_s = 40}), 10);
  EXPECT_EQ(limit_seconds({.bytes = 100}, {}), 0);
}

// Logits are asked of a prompt's last token alone, so lm_head is read once, whatever the number of passes.
TEST(Work, LmHeadCountsOnceAPrompt) {
  const test::SyntheticModel model(test::golden_path("t1/config.json"));
  const auto plan = plan::compile(model->weights, Phase::prefill, {});
  const auto with = plan::cost(plan, model->weights, {.rows = 8, .output_rows = 1});
  const auto without = plan::cost(plan, model->weights, {.rows = 8, .output_rows = 0});
  const double head =
      double(model->weights.get({Role::lm_head}).bytes()) + double(model->weights.get({Role::final_norm}).bytes());
  EXPECT_DOUBLE_EQ(with.weight_bytes - without.weight_bytes, head);
}

}  // namespace
}  // namespace lily::bench
