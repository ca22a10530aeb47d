#include <gtest/gtest.h>

#include "engine/generate.h"
#include "fake_backend.h"

namespace lily {
namespace {

using fake::Rig;
using fake::some_ids;
using plan::Phase;
using Ids = std::vector<std::int32_t>;

Sampler greedy() {
  return Sampler(SamplerOptions{.temperature = 0});
}

Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void expect_logits(Session& s, const std::vector<float>& expected) {
  const auto l = s.logits();
  EXPECT_EQ(std::vector<float>(l.begin(), l.end()), expected);
}

TEST(FakeBackend, LogitsDependOnEveryTokenThroughBothKindsOfState) {
  Rig rig;
  const Ids ids = some_ids(600);
  const auto truth = rig.cold_logits(ids);
  for (const int at : {0, 255, 256, 511, 599}) {
    Ids other = ids;
    other[at] = (other[at] + 1) % fake::kVocab;
    EXPECT_NE(rig.cold_logits(other), truth) << at;
  }
}

TEST(Session, ReadsAPromptInTheFewestPassesOfNearlyEqualLengthAndWantsOneRowOfLogits) {
  Rig rig(64);
  Session s(rig.engine);
  const auto report = s.sync(some_ids(151));
  EXPECT_EQ(report.reused, 0);
  EXPECT_EQ(report.computed, 151);
  ASSERT_EQ(rig.backend->passes.size(), 3u);
  EXPECT_EQ(rig.backend->passes[0].rows, 51);
  EXPECT_EQ(rig.backend->passes[0].wanted, 0);
  EXPECT_EQ(rig.backend->passes[2].rows, 50);
  EXPECT_EQ(rig.backend->passes[2].wanted, 1);
  for (const auto& p : rig.backend->passes) EXPECT_EQ(p.phase, Phase::prefill);
  Rig whole(4096);
  expect_logits(s, whole.cold_logits(some_ids(151)));
}

TEST(Session, NextAppendsAndComputesTheTokenOnlyWhenLogitsAreWanted) {
  Rig rig;
  Session s(rig.engine);
  s.sync(some_ids(10));
  Sampler sampler = greedy();
  const auto first = s.next(sampler);
  EXPECT_EQ(rig.backend->passes.size(), 1u);
  const auto second = s.next(sampler);
  ASSERT_EQ(rig.backend->passes.size(), 2u);
  EXPECT_EQ(rig.backend->passes[1].phase, Phase::decode);
  EXPECT_EQ(s.tokens(), joined(some_ids(10), {first, second}));
  expect_logits(s, rig.cold_logits(s.tokens()));
}

TEST(Session, SyncExtendsWhenTheIdsBeginWithTheTimeline) {
  Rig rig;
  Session s(rig.engine);
  s.sync(some_ids(10));
  Sampler sampler = greedy();
  for (int i = 0; i < 5; ++i) s.next(sampler);
  const Ids longer = joined(s.tokens(), some_ids(300, 1));
  const auto report = s.sync(longer);
  EXPECT_EQ(report.reused, 14);  // the last sampled token had not been computed
  EXPECT_EQ(report.computed, 301);
  expect_logits(s, rig.cold_logits(longer));
}

TEST(Session, TheSamePromptAgainCostsNothing) {
  Rig rig;
  Session s(rig.engine);
  s.sync(some_ids(100));
  expect_logits(s, rig.cold_logits(some_ids(100)));
  EXPECT_EQ(s.sync(some_ids(100)).computed, 0);
  Sampler sampler = greedy();
  s.next(sampler);
  s.next(sampler);
  EXPECT_EQ(s.sync(some_ids(100)).computed, 0);  // from the snapshot at its end, logits and all
  expect_logits(s, rig.cold_logits(some_ids(100)));
}

TEST(Session, GoesBackToTheSnapshotBeforeTheAnswerThatIsRenderedAnotherWay) {
  // What a chat does: the answer comes back without its thinking, so the ids part inside the old timeline.
  Rig rig;
  Session s(rig.engine);
  Ids history = some_ids(250);  // the blocks' border (256) falls into the answer
  for (int turn = 0; turn < 4; ++turn) {
    const Ids prompt = joined(history, {90, 91, 92});
    const auto report = s.sync(prompt, {.snapshot_at = {std::int64_t(history.size())}});
    if (turn > 0) {
      EXPECT_EQ(report.reused, std::int64_t(history.size()) - 25) << turn;
    }
    expect_logits(s, rig.cold_logits(prompt));
    Sampler sampler = greedy();
    for (int i = 0; i < 30; ++i) s.next(sampler);
    history = joined(history, some_ids(25, turn + 2));  // the answer as it is rendered, and the next question
  }
}

TEST(Session, ASnapshotsBlocksAreNotOverwrittenByWhatComesAfter) {
  Rig rig;
  Session s(rig.engine);
  s.sync(some_ids(100));
  s.sync(joined(some_ids(100), some_ids(200, 1)));
  s.sync(joined(some_ids(100), some_ids(200, 2)));
  expect_logits(s, rig.cold_logits(joined(some_ids(100), some_ids(200, 2))));
  s.sync(joined(some_ids(100), some_ids(200, 1)));
  expect_logits(s, rig.cold_logits(joined(some_ids(100), some_ids(200, 1))));
}

TEST(Session, OtherIdsAreReadFromTheBeginning) {
  Rig rig;
  Session s(rig.engine);
  s.sync(some_ids(100));
  const auto report = s.sync(some_ids(100, 3));
  EXPECT_EQ(report.reused, 0);
  expect_logits(s, rig.cold_logits(some_ids(100, 3)));
}

TEST(Session, RandomEditsAlwaysGiveTheLogitsOfAColdRun) {
  Rig rig(32);
  Session s(rig.engine);
  std::uint64_t draws = 0;
  const auto below = [&](int n) { return int(uniform_draw(11, draws++) * n); };
  Ids ids = some_ids(200);
  for (int round = 0; round < 60; ++round) {
    ids.resize(1 + below(int(ids.size())));
    for (int n = below(300); n > 0; --n) ids.push_back(below(fake::kVocab));
    s.sync(ids, {.snapshot_at =
                     below(2) ? std::vector<std::int64_t>{1 + below(int(ids.size()))} : std::vector<std::int64_t>{}});
    expect_logits(s, rig.cold_logits(ids));
    Sampler sampler = greedy();
    for (int n = below(20); n > 0; --n) s.next(sampler);
    if (below(2)) ids = s.tokens();
  }
}

TEST(Session, KeepsNoMoreSnapshotsThanAllowed) {
  Rig rig(64, {.snapshots = 2});
  Session s(rig.engine);
  s.sync(some_ids(50, 1));
  const auto one = s.cache().use().snapshot_bytes;
  EXPECT_GT(one, 0);
  for (int i = 2; i < 9; ++i) s.sync(some_ids(50, i));
  EXPECT_EQ(s.cache().use().snapshot_bytes, 2 * one);
  EXPECT_EQ(s.sync(some_ids(50, 7)).reused, 50);  // the last two are there, older ones are not
  EXPECT_EQ(s.sync(some_ids(50, 5)).reused, 0);
  Rig none(64, {.snapshots = 0});
  Session t(none.engine);
  t.sync(some_ids(50, 1));
  EXPECT_EQ(t.cache().use().snapshot_bytes, 0);
}

TEST(Session, ProgressIsToldBeforeTheFirstChunkAndAfterEach) {
  Rig rig(64);
  Session s(rig.engine);
  std::vector<std::int64_t> told;
  s.sync(some_ids(130), {.progress = [&](std::int64_t done, std::int64_t total) {
           EXPECT_EQ(total, 130);
           told.push_back(done);
           return true;
         }});
  EXPECT_EQ(told, (std::vector<std::int64_t>{0, 44, 87, 130}));
}

TEST(Session, ACancelledPromptKeepsWhatWasRead) {
  Rig rig(64);
  Session s(rig.engine);
  const SyncOptions stop{.progress = [](std::int64_t done, std::int64_t) { return done < 100; }};
  try {
    s.sync(some_ids(300), stop);
    FAIL() << "was not cancelled";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled);
    EXPECT_NE(std::string(e.what()).find("120 of 300"), std::string::npos) << e.what();
  }
  Ids read = some_ids(300);
  read.resize(120);
  EXPECT_EQ(s.tokens(), read);
  EXPECT_THROW(s.logits(), Error);  // nothing was predicted yet
  const auto report = s.sync(some_ids(300));
  EXPECT_EQ(report.reused, 120);
  expect_logits(s, rig.cold_logits(some_ids(300)));
}

TEST(Session, NonFiniteLogitsFailTheStepAndDropTheStateWithItsSnapshots) {
  Rig rig(64);
  Session s(rig.engine);
  s.sync(some_ids(40));
  EXPECT_GT(s.cache().use().snapshot_bytes, 0);
  rig.backend->poison_length = 42;
  Sampler sampler = greedy();
  s.next(sampler);
  s.next(sampler);  // from the logits after 41 tokens: still finite
  try {
    s.next(sampler);
    FAIL() << "a NaN went through";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::numerical);
    EXPECT_NE(std::string(e.what()).find("token 17"), std::string::npos) << e.what();
  }
  EXPECT_TRUE(s.tokens().empty());
  EXPECT_EQ(s.cache().use().snapshot_bytes, 0);
  rig.backend->poison_length = 0;
  EXPECT_EQ(s.sync(some_ids(40)).reused, 0);  // nothing of the old state is used again
  expect_logits(s, rig.cold_logits(some_ids(40)));
}

TEST(Session, NonFiniteLogitsOfAPromptFailSync) {
  Rig rig(64);
  Session s(rig.engine);
  rig.backend->poison_length = 1;
  EXPECT_THROW(s.sync(some_ids(40)), Error);
  EXPECT_TRUE(s.tokens().empty());
  EXPECT_EQ(s.cache().use().snapshot_bytes, 0);
}

TEST(Session, AFailedPassLeavesASessionAsNew) {
  Rig rig(64);
  Session s(rig.engine);
  rig.backend->fail_at = 2;
  EXPECT_THROW(s.sync(some_ids(100)), Error);
  EXPECT_TRUE(s.tokens().empty());
  EXPECT_EQ(s.sync(some_ids(100)).reused, 0);
  expect_logits(s, rig.cold_logits(some_ids(100)));
}

TEST(RequireFinite, FindsEachKindAtEveryPlace) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (std::size_t at : {0, 1, 31, 98}) {
      std::vector<float> l(99, 3.0e38f);
      EXPECT_NO_THROW(require_finite(l));
      l[at] = bad;
      EXPECT_THROW(require_finite(l), Error);
    }
  }
}

TEST(Session, RefusesBeforeAnythingIsComputed) {
  Rig rig(64, {}, 100);
  Session s(rig.engine);
  const auto refused = [&](const Ids& ids, std::initializer_list<const char*> words) {
    try {
      s.sync(ids);
      ADD_FAILURE() << "not refused";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      for (const char* w : words) EXPECT_NE(std::string(e.what()).find(w), std::string::npos) << e.what();
    }
  };
  refused({}, {"empty"});
  refused({1, 2, fake::kVocab}, {"101", "position 2"});
  refused({1, -1}, {"-1", "position 1"});
  refused(some_ids(100), {"100 tokens", "window of 100"});
  refused(some_ids(150), {"150 tokens", "window of 100"});
  EXPECT_TRUE(rig.backend->passes.empty());
  EXPECT_NO_THROW(s.sync(some_ids(99)));
}

TEST(Engine, AWindowBeyondTheModelsIsRefused) {
  EXPECT_THROW(Rig(64, {.max_context = 101}, 100), Error);
  EXPECT_EQ(Rig(64, {.max_context = 50}, 100).engine.max_context(), 50);
}

TEST(Generate, StopsAtTheEndTokenTheLimitTheWindowOrTheCallersWord) {
  Rig rig(64, {}, 60);
  const Ids prompt = some_ids(20);
  const auto run = [&](GenerateOptions options) {
    Session s(rig.engine);
    Sampler sampler = greedy();
    return generate(s, prompt, sampler, options);
  };
  const Generated all = run({});
  EXPECT_EQ(all.finish, Finish::length);
  EXPECT_EQ(all.ids.size(), 40u);  // to the end of the window
  EXPECT_EQ(all.decode_steps, 39);
  EXPECT_EQ(run({.max_tokens = 7}).ids, Ids(all.ids.begin(), all.ids.begin() + 7));
  EXPECT_EQ(run({.max_tokens = 7000}).ids, all.ids);

  Ids seen;
  const std::int32_t end = all.ids[5];
  const auto first = std::find(all.ids.begin(), all.ids.end(), end) - all.ids.begin();
  const Generated ended = run({.end_ids = {-5, end}, .on_token = [&](std::int32_t id) {
                                 seen.push_back(id);
                                 return true;
                               }});
  EXPECT_EQ(ended.finish, Finish::end_token);
  EXPECT_EQ(ended.ids.size(), std::size_t(first) + 1);
  EXPECT_EQ(seen, Ids(ended.ids.begin(), ended.ids.end() - 1));  // the end token is no part of the text

  int left = 3;
  const Generated stopped = run({.on_token = [&](std::int32_t) { return --left > 0; }});
  EXPECT_EQ(stopped.finish, Finish::stopped);
  EXPECT_EQ(stopped.ids.size(), 3u);
}

TEST(EngineLogits, FollowTheSplitAndCallOneTokenPassesDecode) {
  Rig rig(16);
  const Ids ids = some_ids(50);
  std::vector<float> all;
  const auto collect = [&](std::int64_t first, int rows, const float* l) {
    EXPECT_EQ(first * fake::kVocab, std::int64_t(all.size()));
    all.insert(all.end(), l, l + std::int64_t(rows) * fake::kVocab);
  };
  const auto shape_of = [&](std::vector<int> split) {
    rig.backend->passes.clear();
    all.clear();
    rig.engine.logits(ids, split, collect);
    EXPECT_EQ(all.size(), 50u * fake::kVocab);
    std::vector<int> rows;
    for (const auto& p : rig.backend->passes) rows.push_back(p.phase == Phase::decode ? -p.rows : p.rows);
    return rows;
  };
  EXPECT_EQ(shape_of({}), (std::vector<int>{16, 16, 16, 2}));
  const auto truth = all;
  EXPECT_EQ(shape_of({7, 1, 12}), (std::vector<int>{7, -1, 12, 12, 12, 6}));
  EXPECT_EQ(all, truth);
  EXPECT_EQ(shape_of({20}), (std::vector<int>{16, 4, 16, 4, 10}));  // beyond the longest pass
  EXPECT_EQ(shape_of({1}), std::vector<int>(50, -1));
  EXPECT_EQ(all, truth);
  for (int i = 0; i < 50; i += 7) {
    EXPECT_EQ(std::vector<float>(all.begin() + i * fake::kVocab, all.begin() + (i + 1) * fake::kVocab),
              rig.cold_logits({ids.data(), std::size_t(i) + 1}));
  }
}

}  // namespace
}  // namespace lily
