#include "engine/scheduler.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <semaphore>
#include <thread>

#include "fake_backend.h"

namespace lily {
namespace {

using fake::Rig;
using fake::some_ids;
using Ids = std::vector<std::int32_t>;
constexpr std::int64_t kPlenty = 64 << 20;

Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Rows of all prompts that were read so far.
int rows_read(const Rig& rig) {
  int rows = 0;
  for (const auto& p : rig.backend->passes)
    if (p.phase == plan::Phase::prefill) rows += p.rows;
  return rows;
}

/// Keeps what it hears; ended() can be waited for.
class Ear : public Listener {
 public:
  void started(const SyncReport& r) override { known = r.reused; }
  void progress(std::int64_t done, std::int64_t) override {
    if (on_progress) on_progress(done);
  }
  bool token(const NextToken& t) override {
    {
      const std::lock_guard lock(mutex_);
      ids.push_back(t.id);
      tokens.push_back(t);
    }
    heard_.notify_all();
    return !on_token || on_token(int(ids.size()));
  }
  void ended(const Ended& e) override {
    if (on_ended) on_ended();
    {
      const std::lock_guard lock(mutex_);
      end = e;
      static std::atomic<int> ends = 0;
      place = ++ends;
      over_ = true;
    }
    heard_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    heard_.wait(lock, [&] { return over_; });
  }
  void wait_for_tokens(std::size_t n) {
    std::unique_lock lock(mutex_);
    heard_.wait(lock, [&] { return over_ || ids.size() >= n; });
  }
  std::string error() {
    wait();
    try {
      if (end.error) std::rethrow_exception(end.error);
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  }

  std::function<bool(int)> on_token;
  std::function<void(std::int64_t)> on_progress;
  std::function<void()> on_ended;
  std::int64_t known = -1;
  Ids ids;
  std::vector<NextToken> tokens;
  Ended end;
  int place = 0;  // among all that ended

 private:
  std::mutex mutex_;
  std::condition_variable heard_;
  bool over_ = false;
};

Request request(Ids ids, const std::shared_ptr<Ear>& ear, std::int64_t max_tokens = 20) {
  Request r;
  r.ids = std::move(ids);
  r.sampling.temperature = 0;
  r.max_tokens = max_tokens;
  r.listener = ear;
  return r;
}

struct Ask {
  std::shared_ptr<Ear> ear = std::make_shared<Ear>();
  std::optional<std::int64_t> number;
  Ask(Scheduler& s, Ids ids, std::int64_t max_tokens = 20) { number = s.submit(request(std::move(ids), ear, max_tokens)); }
  Ids answer() {
    ear->wait();
    return ear->ids;
  }
};

/// An answer whose first `tokens` take their time, so that it is still going on when something else has happened.
std::shared_ptr<Ear> slow_ear(int tokens = INT_MAX) {
  auto ear = std::make_shared<Ear>();
  ear->on_token = [tokens](int n) {
    if (n <= tokens) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  };
  return ear;
}

/// What a session of its own answers.
Ids alone(const Ids& prompt, std::int64_t max_tokens = 20) {
  Rig rig;
  Session s(rig.engine);
  Sampler sampler(SamplerOptions{.temperature = 0});
  return generate(s, prompt, sampler, {.max_tokens = max_tokens}).ids;
}

TEST(Scheduler, AnswersAsASessionDoes) {
  Rig rig;
  Scheduler s(rig.engine, {.cache_bytes = kPlenty});
  EXPECT_EQ(Ask(s, some_ids(300)).answer(), alone(some_ids(300)));
}

TEST(Scheduler, ManyAtOnceEachGetTheirOwnAnswer) {
  Rig rig;
  Scheduler s(rig.engine, {.parallel = 8, .cache_bytes = kPlenty, .busy_chunk = 16});
  const auto first = slow_ear();
  s.submit(request(some_ids(10, 99), first, 200));
  std::vector<Ask> asks;
  for (int i = 0; i < 24; ++i) asks.emplace_back(s, some_ids(20 + 31 * i % 500, i), 5 + i);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(asks[std::size_t(i)].answer(), alone(some_ids(20 + 31 * i % 500, i), 5 + i)) << i;
  first->wait();
  int together = 0;
  for (const auto& p : rig.backend->passes)
    if (p.phase == plan::Phase::decode) together = std::max(together, p.rows);
  EXPECT_GT(together, 1);  // decode steps were shared
}

TEST(Scheduler, AFailureEndsTheRequestItHappenedToAlone) {
  Rig rig;
  rig.backend->poison_length = 320;
  Scheduler s(rig.engine, {.parallel = 4, .cache_bytes = kPlenty});
  Ask bad(s, some_ids(310, 1), 50), good(s, some_ids(100, 2), 50);
  EXPECT_NE(bad.ear->error().find("token 17"), std::string::npos);
  EXPECT_EQ(good.answer(), alone(some_ids(100, 2), 50));
  EXPECT_EQ(s.status().failed, 1);
  Ask again(s, some_ids(310, 1), 5);  // nothing of the poisoned state was kept
  EXPECT_EQ(again.answer(), alone(some_ids(310, 1), 5));
  EXPECT_EQ(again.ear->known, 0);
}

TEST(Scheduler, ThePromptThatWasReadIsNotReadAgainAfterACancel) {
  Rig rig;
  Scheduler s(rig.engine, {.cache_bytes = kPlenty, .chunk = 50});
  auto ear = std::make_shared<Ear>();
  std::int64_t number = 0;
  std::mutex m;
  ear->on_progress = [&](std::int64_t done) {
    const std::lock_guard lock(m);
    if (done >= 200) s.cancel(number);
  };
  {
    const std::lock_guard lock(m);
    number = *s.submit(request(some_ids(1000), ear));
  }
  ear->wait();
  EXPECT_EQ(ear->end.finish, Finish::stopped);
  EXPECT_TRUE(ear->ids.empty());
  Ask again(s, some_ids(1000));
  EXPECT_EQ(again.answer(), alone(some_ids(1000)));
  EXPECT_GE(again.ear->known, 200);
  EXPECT_LT(again.ear->known, 1000);
}

TEST(Scheduler, CancelEndsWhatWaitsAndWhatAnswers) {
  Rig rig;
  Scheduler s(rig.engine, {.parallel = 1, .cache_bytes = kPlenty});
  std::mutex hold;
  hold.lock();
  auto first = std::make_shared<Ear>();
  first->on_token = [&](int n) {
    if (n == 3) hold.lock(), hold.unlock();
    return true;
  };
  const auto a = s.submit(request(some_ids(50), first, 2000));
  Ask waiting(s, some_ids(60));
  first->wait_for_tokens(3);
  s.cancel(*waiting.number);
  s.cancel(*a);
  hold.unlock();
  first->wait();
  EXPECT_EQ(first->end.finish, Finish::stopped);
  EXPECT_LT(first->ids.size(), 10u);
  EXPECT_TRUE(waiting.answer().empty());
  EXPECT_EQ(waiting.ear->known, -1);  // it never began
  EXPECT_EQ(Ask(s, some_ids(70)).answer(), alone(some_ids(70)));
}

TEST(Scheduler, TheQueueHasAnEnd) {
  Rig rig;
  Scheduler s(rig.engine, {.parallel = 1, .queue = 2, .cache_bytes = kPlenty});
  std::mutex hold;
  hold.lock();
  auto ear = std::make_shared<Ear>();
  ear->on_token = [&](int n) {
    if (n == 1) hold.lock(), hold.unlock();
    return true;
  };
  s.submit(request(some_ids(50), ear));
  ear->wait_for_tokens(1);
  Ask b(s, some_ids(51)), c(s, some_ids(52)), d(s, some_ids(53));
  EXPECT_TRUE(b.number && c.number);
  EXPECT_FALSE(d.number);
  EXPECT_EQ(s.status().waiting, 2);
  hold.unlock();
  EXPECT_EQ(c.answer(), alone(some_ids(52)));
}

TEST(Scheduler, AnAnswerGoesOnWhileALongPromptIsRead) {
  Rig rig(512);
  Scheduler s(rig.engine, {.parallel = 2, .cache_bytes = kPlenty, .busy_chunk = 32});
  const auto runner = slow_ear();
  const auto number = s.submit(request(some_ids(20), runner, 3000));
  runner->wait_for_tokens(5);
  Ask longer(s, some_ids(2000, 1), 5);
  EXPECT_EQ(longer.answer(), alone(some_ids(2000, 1), 5));
  s.cancel(*number);
  runner->wait();
  // Between two chunks of the long prompt stands at least one decode step.
  bool last_was_chunk = false;
  for (const auto& p : rig.backend->passes) {
    const bool chunk = p.phase == plan::Phase::prefill && p.rows > 20;
    EXPECT_LE(p.rows, 32);
    EXPECT_FALSE(chunk && last_was_chunk);
    last_was_chunk = chunk;
  }
}

TEST(Scheduler, ChunksFollowTheTimeTheyTake) {
  Rig rig(4000);
  Scheduler s(rig.engine, {.cache_bytes = kPlenty, .chunk_seconds = 1e-9});
  Ask(s, some_ids(1500), 1).ear->wait();
  ASSERT_GT(rig.backend->passes.size(), 10u);
  EXPECT_EQ(rig.backend->passes[0].rows, 500);  // three of equal length, before anything is known
  EXPECT_LE(rig.backend->passes[1].rows, 64);
}

TEST(Scheduler, AShortPromptNeedNotWaitForALongOne) {
  Rig rig;
  Scheduler s(rig.engine, {.parallel = 2, .cache_bytes = kPlenty, .chunk = 64});
  std::mutex hold;
  hold.lock();
  auto ear = std::make_shared<Ear>();
  bool once = true;
  ear->on_progress = [&](std::int64_t) {
    if (once) hold.lock(), hold.unlock();
    once = false;
  };
  s.submit(request(some_ids(3000), ear, 2));
  Ask brief(s, some_ids(70, 1), 2);
  hold.unlock();
  brief.answer();
  ear->wait();
  EXPECT_LT(brief.ear->place, ear->place);
  EXPECT_EQ(ear->ids, alone(some_ids(3000), 2));
}

/// A prompt of 20 tokens that keeps the worker in its first pass: what is submitted meanwhile comes at once.
class Busy {
 public:
  explicit Busy(Scheduler& s) {
    hold_.lock();
    ear_->on_progress = [this](std::int64_t) {
      held_.release();
      hold_.lock();
      hold_.unlock();
    };
    s.submit(request(some_ids(20), ear_, 1));
    held_.acquire();
  }
  void end() {
    hold_.unlock();
    ear_->wait();
  }

 private:
  std::shared_ptr<Ear> ear_ = std::make_shared<Ear>();
  std::mutex hold_;
  std::binary_semaphore held_{0};
};

// A pass over a few tokens costs nearly what one over many does: what comes at once is read at once, with the bits of being alone.
TEST(Scheduler, ShortPromptsShareAPass) {
  Rig rig(200);
  Scheduler s(rig.engine, {.parallel = 8, .cache_bytes = kPlenty, .busy_chunk = 200, .chunk = 200});
  Busy busy(s);
  std::vector<Ask> asks;
  for (int i = 0; i < 5; ++i) asks.emplace_back(s, some_ids(60, i + 1), 5);
  busy.end();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(asks[std::size_t(i)].answer(), alone(some_ids(60, i + 1), 5)) << i;
  std::vector<int> rows;
  for (const auto& p : rig.backend->passes)
    if (p.phase == plan::Phase::prefill) rows.push_back(p.rows);
  EXPECT_EQ(rows, (std::vector<int>{20, 180, 120}));
  for (const Ask& ask : asks) EXPECT_GT(ask.ear->end.prefill_seconds, 0);
}

// … but not what they have in common: one reads it for all.
TEST(Scheduler, PromptsThatShareAPassDoNotReadACommonBeginningTwice) {
  Rig rig(4000);
  Scheduler s(rig.engine, {.parallel = 8, .cache_bytes = kPlenty, .busy_chunk = 4000, .chunk = 4000});
  Busy busy(s);
  std::vector<std::shared_ptr<Ear>> ears;
  std::vector<Ids> prompts;
  for (int i = 0; i < 3; ++i) {
    prompts.push_back(joined(some_ids(200, 50), some_ids(30, i + 1)));
    Request r = request(prompts.back(), ears.emplace_back(std::make_shared<Ear>()), 5);
    r.snapshot_at = {200, 230};
    s.submit(std::move(r));
  }
  busy.end();
  for (std::size_t i = 0; i < 3; ++i) {
    ears[i]->wait();
    EXPECT_EQ(ears[i]->ids, alone(prompts[i], 5)) << i;
  }
  const int read = rows_read(rig);
  EXPECT_EQ(read, 20 + 200 + 3 * 30);
}

// … where one of them fails, alone.
TEST(Scheduler, AFailureInASharedPassEndsItsOwnRequestAlone) {
  Rig rig(4000);
  rig.backend->poison_length = 60;
  Scheduler s(rig.engine, {.parallel = 8, .cache_bytes = kPlenty});
  Busy busy(s);
  Ask before(s, some_ids(50, 1), 5), bad(s, some_ids(60, 2), 5), after(s, some_ids(40, 3), 5);
  busy.end();
  EXPECT_NE(bad.ear->error(), "");
  EXPECT_EQ(before.answer(), alone(some_ids(50, 1), 5));
  EXPECT_EQ(after.answer(), alone(some_ids(40, 3), 5));
}

TEST(Scheduler, ACommonBeginningIsReadOnceByAllThatCameAtOnce) {
  Rig rig(4000);
  Scheduler s(rig.engine, {.parallel = 8, .cache_bytes = kPlenty, .chunk = 100});
  std::vector<std::shared_ptr<Ear>> ears;
  std::vector<Ids> prompts;
  for (int i = 0; i < 8; ++i) {
    prompts.push_back(joined(some_ids(2000), some_ids(30, i + 1)));
    Request r = request(prompts.back(), ears.emplace_back(std::make_shared<Ear>()), 5);
    for (std::int64_t at = 100; at <= 2000; at += 100) r.snapshot_at.push_back(at);
    s.submit(std::move(r));
  }
  for (std::size_t i = 0; i < 8; ++i) {
    ears[i]->wait();
    EXPECT_EQ(ears[i]->ids, alone(prompts[i], 5)) << i;
  }
  const int read = rows_read(rig);
  EXPECT_LE(read, 2000 + 8 * 30 + 100);  // at most one chunk twice: the first may be read before the others come
  std::int64_t known = 0;
  for (const auto& ear : ears) known += ear->end.prompt.reused;
  EXPECT_EQ(known, 8 * 2030 - read);
}

TEST(Scheduler, AConversationReadsOnlyWhatIsNew) {
  Rig rig;
  Scheduler s(rig.engine, {.cache_bytes = kPlenty});
  Ids history = some_ids(400);
  for (int turn = 0; turn < 20; ++turn) {
    Ask ask(s, history, 12);
    const Ids answer = ask.answer();
    if (turn > 0) {
      EXPECT_EQ(std::int64_t(history.size()) - ask.ear->known, 31) << turn;  // 30 new ones, and the last that was sampled
    }
    history = joined(joined(history, answer), some_ids(30, turn + 2));
  }
}

TEST(Scheduler, RegenerateAndEditGoBackToTheLastBoundary) {
  Rig rig;
  Scheduler s(rig.engine, {.cache_bytes = kPlenty});
  const Ids system = some_ids(200), question = some_ids(40, 1), edited = some_ids(45, 2);
  const auto ask = [&](const Ids& q) {
    auto ear = std::make_shared<Ear>();
    Request r = request(joined(system, q), ear);
    r.snapshot_at = {200, std::int64_t(200 + q.size())};
    s.submit(std::move(r));
    ear->wait();
    EXPECT_EQ(ear->ids, alone(joined(system, q)));
    return ear->known;
  };
  EXPECT_EQ(ask(question), 0);
  EXPECT_EQ(ask(question), 240);  // regenerate: all of it is known
  EXPECT_EQ(ask(edited), 200);
}

TEST(Scheduler, ADifferenceIsReportedWhereItIs) {
  Rig rig;
  Scheduler s(rig.engine, {.cache_bytes = kPlenty});
  Ids ids = some_ids(300);
  Ask(s, ids).answer();
  ids[80] = (ids[80] + 1) % fake::kVocab;
  Ask(s, ids).answer();
  const SchedulerStatus status = s.status();
  EXPECT_EQ(status.last_hit, 0);
  EXPECT_EQ(status.last_prompt, 300);
  EXPECT_EQ(status.last_parting.at, 80);
  ASSERT_EQ(status.last_parting.cached.size(), status.last_ids.size());
  for (std::size_t i = 0; i < status.last_ids.size(); ++i)
    EXPECT_EQ(status.last_ids[i] == status.last_parting.cached[i], status.last_parting.cached_from + std::int64_t(i) != 80) << i;
}

TEST(Scheduler, AThousandPromptsStayWithinTheBudgetAndTheConversationInIt) {
  Rig rig;
  const std::int64_t budget = 64 << 10;
  Scheduler s(rig.engine, {.cache_bytes = budget});
  Ids chat = some_ids(600);
  std::int64_t most = 0;
  for (int i = 0; i < 1000; ++i) {
    Ask(s, some_ids(30 + i % 50, i), 2).answer();
    const CacheUse use = s.cache().use();
    most = std::max(most, use.kv_bytes + use.snapshot_bytes + s.status().running_bytes);
    EXPECT_LE(use.kv_bytes + use.snapshot_bytes, budget);
    if (i % 5 == 4) {  // the conversation survives the side requests
      Ask ask(s, chat, 5);
      const Ids answer = ask.answer();
      if (i > 5) {
        EXPECT_GE(ask.ear->known, 600) << i;
      }
      if (chat.size() < 1500) chat = joined(joined(chat, answer), some_ids(10, i));
    }
  }
  EXPECT_GT(s.cache().use().evicted, 100);
  EXPECT_LE(most, budget);
}

TEST(Scheduler, RefusesAtOnceWhatCanNeverRun) {
  Rig rig(64, {}, 100);
  Scheduler s(rig.engine, {.cache_bytes = kPlenty});
  auto ear = std::make_shared<Ear>();
  for (const Ids& ids : {Ids{}, Ids{1, 2, 101}, some_ids(100)}) EXPECT_THROW(s.submit(request(ids, ear)), Error);
  Rig big;
  Scheduler small(big.engine, {.cache_bytes = 16 << 10});
  EXPECT_LT(small.window(), 4096);
  EXPECT_GT(small.window(), 100);
  EXPECT_THROW(small.submit(request(some_ids(int(small.window())), ear)), Error);
  Ask(small, some_ids(int(small.window()) - 20), 100).ear->wait();  // … and its answer is cut at the end of the window
  EXPECT_THROW(Scheduler(big.engine, {.cache_bytes = 100}), Error);
}

TEST(Scheduler, MemoryThatIsNotThereIsWaitedFor) {
  Rig rig;
  Scheduler s(rig.engine, {.parallel = 4, .cache_bytes = 20 << 10});
  std::vector<Ask> asks;
  for (int i = 0; i < 6; ++i) asks.emplace_back(s, some_ids(700, i), 30);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(asks[std::size_t(i)].answer(), alone(some_ids(700, i), 30)) << i;
}

TEST(Scheduler, AnswersThatOutgrowTheMemoryWaitAndGoOnWithTheSameBits) {
  Rig rig;
  // Room for two of the prompts; each answer needs another block before its end, and they get there together.
  Scheduler s(rig.engine, {.parallel = 4, .cache_bytes = 22 << 10});
  std::vector<std::shared_ptr<Ear>> ears;
  for (int i = 0; i < 4; ++i) s.submit(request(some_ids(200, i), ears.emplace_back(slow_ear(10)), 400));
  for (int i = 0; i < 4; ++i) {
    ears[std::size_t(i)]->wait();
    EXPECT_EQ(ears[std::size_t(i)]->ids, alone(some_ids(200, i), 400)) << i;
  }
  const SchedulerStatus status = s.status();
  EXPECT_EQ(status.requests, 4);
  EXPECT_EQ(status.failed, 0);
  EXPECT_GT(rig.backend->rows_run(), 4 * 600) << "none gave way: this test shows nothing";
}

TEST(Scheduler, OneThatGivesWayTwiceSaysEachTokenOnce) {
  Rig rig;
  // The third gives way when all three need a third block, again when the second needs its fifth.
  Scheduler s(rig.engine, {.parallel = 4, .cache_bytes = 32 << 10});
  const int lengths[] = {400, 1100, 560};
  std::vector<std::shared_ptr<Ear>> ears;
  for (int i = 0; i < 3; ++i) s.submit(request(some_ids(200, i), ears.emplace_back(slow_ear(10)), lengths[i]));
  for (int i = 0; i < 3; ++i) {
    ears[std::size_t(i)]->wait();
    EXPECT_EQ(ears[std::size_t(i)]->ids, alone(some_ids(200, i), lengths[i])) << i;
  }
  // Each token once, and what the third had said at either time once more.
  EXPECT_GT(rig.backend->rows_run(), 600 + 1300 + 760 + 312 + 424 - 20);
}

TEST(Scheduler, WhatIsReadAgainAfterGivingWayIsNotCountedAgain) {
  Rig rig(16);
  // The second gives way when the first needs its fourth block. Its prompt is forgotten, and then read by it and a third in turns.
  Scheduler s(rig.engine, {.parallel = 2, .cache_bytes = 26000});
  const Ids prompt = some_ids(100);
  auto first = slow_ear(10), second = std::make_shared<Ear>(), third = std::make_shared<Ear>();
  const auto slow = first->on_token;
  first->on_token = [&, slow](int n) {
    if (n == 699) s.cache().forget(prompt);
    return slow(n);
  };
  s.submit(request(some_ids(240, 1), first, 700));
  for (const auto& [ear, most] : {std::pair(second, 700), std::pair(third, 5)}) {
    Request r = request(prompt, ear, most);
    for (std::int64_t at = 16; at < 100; at += 16) r.snapshot_at.push_back(at);
    s.submit(std::move(r));
  }
  for (const auto& ear : {first, second, third}) ear->wait();
  EXPECT_EQ(second->ids, alone(prompt, 700));
  EXPECT_EQ(second->end.prompt.reused, 0);
  EXPECT_EQ(second->end.prompt.computed, 100);
  EXPECT_GT(third->end.prompt.reused, 0) << "they did not take turns: this test shows nothing";
  EXPECT_EQ(s.status().cached_tokens, third->end.prompt.reused);
}

TEST(Scheduler, WhoHearsOfTheEndFindsThePlaceFree) {
  Rig rig;
  Scheduler s(rig.engine, {.parallel = 1, .cache_bytes = kPlenty});
  SchedulerStatus then;
  auto ear = std::make_shared<Ear>();
  ear->on_ended = [&] { then = s.status(); };
  s.submit(request(some_ids(300), ear));
  ear->wait();
  EXPECT_EQ(then.requests, 1);
  EXPECT_EQ(then.running, 0);
  EXPECT_EQ(then.running_bytes, 0);
}

/// Forces an opening, then allows two tokens alone.
class Opening : public Guide {
 public:
  std::optional<std::int32_t> forced() override { return at_ < 3 ? std::optional<std::int32_t>(70 + at_) : std::nullopt; }
  bool restrict(std::span<float> logits) override {
    for (std::size_t i = 0; i < logits.size(); ++i)
      if (i != 5 && i != 9) logits[i] = -INFINITY;
    return true;
  }
  void accept(std::int32_t) override { ++at_; }

 private:
  int at_ = 0;
};

TEST(Scheduler, AGuideForcesAndRestricts) {
  Rig rig;
  Scheduler s(rig.engine, {.cache_bytes = kPlenty});
  auto ear = std::make_shared<Ear>();
  Request r = request(some_ids(50), ear);
  r.guide = std::make_unique<Opening>();
  s.submit(std::move(r));
  ear->wait();
  ASSERT_EQ(ear->ids.size(), 20u);
  EXPECT_EQ(Ids(ear->ids.begin(), ear->ids.begin() + 3), (Ids{70, 71, 72}));
  for (std::size_t i = 3; i < 20; ++i) EXPECT_TRUE(ear->ids[i] == 5 || ear->ids[i] == 9);
}

TEST(Scheduler, LogProbabilitiesAreThoseOfTheModel) {
  Rig rig;
  Scheduler s(rig.engine, {.cache_bytes = kPlenty});
  auto ear = std::make_shared<Ear>();
  Request r = request(some_ids(50), ear, 3);
  r.logprobs = 100;
  s.submit(std::move(r));
  ear->wait();
  const auto logits = rig.cold_logits(some_ids(50));
  double sum = 0;
  for (const float l : logits) sum += std::exp(double(l));
  const NextToken& first = ear->tokens.at(0);
  ASSERT_EQ(first.top.size(), 100u);
  EXPECT_EQ(first.top[0].id, first.id);  // greedy
  for (const TokenLogprob& t : first.top) EXPECT_NEAR(t.logprob, double(logits[std::size_t(t.id)]) - std::log(sum), 1e-4);
  for (std::size_t i = 1; i < 100; ++i) EXPECT_GE(first.top[i - 1].logprob, first.top[i].logprob);
}

TEST(Scheduler, EndingItEndsWhatRunsAndWhatWaits) {
  Rig rig;
  auto a = slow_ear(), b = std::make_shared<Ear>();
  {
    Scheduler s(rig.engine, {.parallel = 1, .cache_bytes = kPlenty});
    s.submit(request(some_ids(50), a, 3000));
    s.submit(request(some_ids(51), b, 3000));
    a->wait_for_tokens(1);
  }
  a->wait();
  b->wait();
  EXPECT_EQ(a->end.finish, Finish::stopped);
  EXPECT_EQ(b->end.finish, Finish::stopped);
}

TEST(Scheduler, AStoreBringsConversationsBackAfterARestart) {
  const auto dir = std::filesystem::path(::testing::TempDir()) / ("scheduler-store-" + std::to_string(getpid()));
  const auto options = [&](Rig& rig) {
    return SchedulerOptions{.cache_bytes = kPlenty, .store = std::make_shared<CacheStore>(dir, "k", rig.backend->state_layout(), fake::kVocab, kPlenty)};
  };
  Ids history = some_ids(500);
  {
    Rig rig;
    Scheduler s(rig.engine, options(rig));
    history = joined(history, Ask(s, history, 12).answer());
  }
  history = joined(history, some_ids(30, 9));
  {
    Rig rig;
    Scheduler s(rig.engine, options(rig));
    Ask ask(s, history, 12);
    EXPECT_EQ(ask.answer(), alone(history, 12));
    EXPECT_EQ(ask.ear->known, 511);  // all but the last token that was sampled
  }
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace lily
