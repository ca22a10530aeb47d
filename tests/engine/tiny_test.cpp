// The engine over the bundled model: the golden greedy runs, and what resuming a conversation does to the bits.
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "engine/generate.h"
#include "engine/scheduler.h"
#include "model/load.h"

namespace lily {
namespace {

using Ids = std::vector<std::int32_t>;
constexpr std::int32_t kEnd = 8182;  // <|im_end|>

struct Case {
  std::string name;
  Ids prompt, answer;
  double margin;
};

std::vector<Case> golden_cases() {
  std::ifstream in(LILY_TEST_DATA "/golden/tiny/greedy.json");
  std::vector<Case> cases;
  const auto file = nlohmann::json::parse(in);
  for (const auto& c : file.at("cases")) {
    cases.push_back({c.at("skill").get<std::string>() + (c.at("thinking") ? ", thinking" : ""), c.at("ids"),
                     c.at("greedy_ids"), c.at("min_margin")});
  }
  return cases;
}

class Tiny : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = new LoadedModel(load_model(LILY_SOURCE_DIR "/models/tiny")); }
  static void TearDownTestSuite() { delete model_; }

  static Engine engine(bool exact, int chunk = 0) {
    EngineOptions o;
    o.backend.exact = exact;
    o.backend.chunk = chunk;
    o.backend.threads = 2;
    return Engine(model_->weights, o);
  }
  static Generated greedy(Session& session, const Ids& prompt, std::int64_t max_tokens) {
    Sampler sampler({.temperature = 0});
    return generate(session, prompt, sampler, {.max_tokens = max_tokens, .end_ids = {kEnd}});
  }
  static LoadedModel* model_;
};
LoadedModel* Tiny::model_ = nullptr;

TEST_F(Tiny, ExactArithmeticGivesEveryGoldenGreedyAnswer) {
  // The smallest margin on the way is 0.048 in logits of about 10 to 20: far above what the order of float32 sums
  // moves.
  Engine e = engine(true);
  Session session(e);
  const auto cases = golden_cases();
  EXPECT_EQ(cases.size(), 30u);
  for (const Case& c : cases) {
    EXPECT_EQ(greedy(session, c.prompt, std::int64_t(c.answer.size())).ids, c.answer) << c.name;
  }
}

TEST_F(Tiny, DefaultArithmeticGivesTheGoldenAnswersWhereTheMarginIsClear) {
  // Quantised activations and bf16 KV move logits by up to some tenths; a margin of 1 is not in their reach.
  Engine e = engine(false);
  Session session(e);
  int compared = 0;
  for (const Case& c : golden_cases()) {
    if (c.margin < 1) continue;
    EXPECT_EQ(greedy(session, c.prompt, std::int64_t(c.answer.size())).ids, c.answer)
        << c.name << ", margin " << c.margin;
    ++compared;
  }
  EXPECT_GT(compared, 15);
}

TEST_F(Tiny, GoingBackToASnapshotGivesTheBitsOfTheSamePassesFromTheBeginning) {
  for (const bool exact : {true, false}) {
    Engine e = engine(exact);
    const Ids prompt = golden_cases()[15].prompt;  // a long one: several KV blocks
    ASSERT_GT(prompt.size(), 400u);
    for (const std::int64_t at :
         exact ? std::vector<std::int64_t>{3, 257} : std::vector<std::int64_t>{1, 2, 3, 4, 255, 256, 400}) {
      Session cold(e), warm(e);
      cold.sync(prompt);
      // Another ending first, then back to the snapshot at `at`.
      Ids other(prompt.begin(), prompt.begin() + at);
      other.insert(other.end(), {5, 6, 7, 8, 9});
      warm.sync(other, {.snapshot_at = {at}});
      greedy(warm, other, 4);
      ASSERT_EQ(warm.sync(prompt).reused, at);
      const auto a = cold.logits(), b = warm.logits();
      EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin())) << at << (exact ? " exact" : "");
      EXPECT_EQ(greedy(cold, prompt, 5).ids, greedy(warm, prompt, 5).ids);
    }
  }
}

TEST_F(Tiny, ChunksChangeNoBit) {
  const Ids prompt = golden_cases()[15].prompt;
  for (const bool exact : {true, false}) {
    std::vector<float> first;
    for (const int chunk : exact ? std::vector<int>{0, 7} : std::vector<int>{0, 7, 64, 256}) {
      Engine e = engine(exact, chunk);
      Session session(e);
      session.sync(prompt);
      const auto l = session.logits();
      if (first.empty()) first.assign(l.begin(), l.end());
      EXPECT_TRUE(std::equal(l.begin(), l.end(), first.begin())) << chunk;
    }
  }
}

TEST_F(Tiny, SeveralSessionsDoNotMix) {
  Engine e = engine(false);
  const auto cases = golden_cases();
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Ids> alone, together(3);
  for (int i = 0; i < 3; ++i) {
    Session s(e);
    alone.push_back(greedy(s, cases[i * 4].prompt, 8).ids);
    sessions.push_back(e.session());
  }
  Sampler sampler({.temperature = 0});
  for (int i = 0; i < 3; ++i) sessions[i]->sync(cases[i * 4].prompt);
  for (int step = 0; step < 8; ++step) {
    for (int i = 0; i < 3; ++i) {
      if (together[i].empty() || together[i].back() != kEnd) together[i].push_back(sessions[i]->next(sampler));
    }
  }
  EXPECT_EQ(together, alone);
}

/// Tokens and log probabilities as a client would see them.
class Recorder : public Listener {
 public:
  bool token(const NextToken& t) override {
    tokens.push_back(t);
    return true;
  }
  void ended(const Ended& e) override {
    EXPECT_FALSE(e.error);
    over.set_value();
  }
  std::vector<NextToken> tokens;
  std::promise<void> over;
};

TEST_F(Tiny, RequestsAtOnceGetTheBitsThatEachGetsAlone) {
  const auto cases = golden_cases();
  const auto run = [&](int parallel, std::int64_t chunk, int streams) {
    Engine e = engine(false);
    Scheduler scheduler(e, {.parallel = parallel, .cache_bytes = 1 << 30, .busy_chunk = chunk});
    std::vector<std::shared_ptr<Recorder>> all;
    for (int i = 0; i < streams; ++i) {
      Request r;
      r.ids = cases[std::size_t(i) * 3].prompt;
      r.sampling = {.temperature = i % 2 ? 0.8 : 0.0, .seed = std::uint64_t(i)};
      r.max_tokens = 12 + i;
      r.logprobs = 3;
      r.listener = all.emplace_back(std::make_shared<Recorder>());
      EXPECT_TRUE(scheduler.submit(std::move(r)));
    }
    std::vector<std::vector<float>> said;
    for (const auto& one : all) {
      one->over.get_future().wait();
      auto& bits = said.emplace_back();
      for (const NextToken& t : one->tokens) {
        bits.push_back(float(t.id));
        bits.push_back(t.logprob);
        for (const TokenLogprob& other : t.top) bits.push_back(other.logprob);
      }
    }
    return said;
  };
  const auto alone = run(1, 128, 8);
  for (const auto& one : alone) EXPECT_GT(one.size(), 10u);
  for (const int streams : {2, 5, 8}) {
    for (const std::int64_t chunk : {7, 64}) {
      const auto together = run(streams, chunk, streams);
      for (int i = 0; i < streams; ++i) EXPECT_EQ(together[std::size_t(i)], alone[std::size_t(i)]) << streams << " at once, number " << i;
    }
  }
}

}  // namespace
}  // namespace lily
