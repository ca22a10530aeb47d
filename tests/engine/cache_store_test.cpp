#include "engine/cache_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "fake_backend.h"

namespace lily {
namespace {

namespace fs = std::filesystem;
using fake::Rig;
using fake::some_ids;
using Ids = std::vector<std::int32_t>;

class Store : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(::testing::TempDir()) / fs::path("store-" + std::to_string(getpid()) + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  CacheStore open(const std::string& key = "k", std::int64_t limit = 1 << 30) {
    return CacheStore(dir_, key, rig_.backend->state_layout(), fake::kVocab, limit);
  }
  std::shared_ptr<const Snapshot> snapshot(const Ids& ids) {
    Session s(rig_.engine);
    s.sync(ids);
    return s.cache().deepest(ids);
  }
  /// What a session says that goes on from `s`.
  std::vector<float> logits_from(const std::shared_ptr<const Snapshot>& s, const Ids& ids) {
    auto cache = std::make_shared<PrefixCache>(CacheLimits{});
    cache->keep(s, ids);
    Session session(rig_.engine, cache);
    EXPECT_EQ(session.sync(ids).reused, std::int64_t(s->ids.size()));
    const auto l = session.logits();
    return {l.begin(), l.end()};
  }
  std::vector<fs::path> files() {
    std::vector<fs::path> all;
    for (const auto& f : fs::directory_iterator(dir_ / "k")) all.push_back(f.path());
    std::sort(all.begin(), all.end());
    return all;
  }

  Rig rig_;
  fs::path dir_;
};

TEST_F(Store, SurvivesARestartWithTheSameLogits) {
  Ids longer = some_ids(700);
  for (int i = 0; i < 40; ++i) longer.push_back(i);
  {
    CacheStore store = open();
    store.keep(snapshot(some_ids(700)));
    store.keep(snapshot(some_ids(300)));
    EXPECT_EQ(store.use().snapshots, 2);
  }
  CacheStore again = open();
  EXPECT_EQ(again.use().snapshots, 2);
  const auto s = again.load(longer, 0);
  ASSERT_TRUE(s);
  EXPECT_EQ(s->ids, some_ids(700));
  EXPECT_EQ(logits_from(s, longer), rig_.cold_logits(longer));
  EXPECT_EQ(again.load(some_ids(400), 0)->ids.size(), 300u);
  EXPECT_EQ(again.load(some_ids(300), 0)->logits, snapshot(some_ids(300))->logits);
  EXPECT_FALSE(again.load(longer, 700));  // memory knows as much
  EXPECT_FALSE(again.load(some_ids(700, 1), 0));
}

TEST_F(Store, BlocksThatSnapshotsShareAreWrittenOnce) {
  Session s(rig_.engine);
  s.sync(some_ids(1024));
  const auto first = s.cache().deepest(some_ids(1024));
  Ids longer = some_ids(1024);
  longer.push_back(5);
  s.sync(longer);
  const auto second = s.cache().deepest(longer);
  CacheStore store = open();
  store.keep(first);
  const auto before = files().size();
  store.keep(second);
  EXPECT_EQ(files().size(), before + 2);  // the state, and the one new block
  store.keep(second);
  EXPECT_EQ(files().size(), before + 2);
}

TEST_F(Store, WhatWasCutOrChangedIsAMissAndGoes) {
  for (int kind = 0; kind < 6; ++kind) {
    fs::remove_all(dir_);
    open().keep(snapshot(some_ids(600)));
    bool state_hit = false;
    for (const fs::path& f : files()) {
      const bool state = f.filename().string().starts_with("st-");
      const auto size = fs::file_size(f);
      if (kind < 3 ? !state : state) continue;
      if (state_hit && kind >= 3) continue;  // one block is enough
      state_hit = true;
      if (kind % 3 == 0) fs::resize_file(f, size - 1);
      if (kind % 3 == 1) fs::resize_file(f, 0);
      if (kind % 3 == 2) {
        std::fstream file(f, std::ios::in | std::ios::out | std::ios::binary);
        const auto at = std::streamoff(size) - 80;  // logits, or the end of a block
        file.seekg(at);
        const int old = file.get();
        file.seekp(at);
        file.put(char(old ^ 1));
      }
    }
    CacheStore again = open();
    EXPECT_FALSE(again.load(some_ids(600), 0)) << kind;
    EXPECT_EQ(again.use().snapshots, 0) << kind;
    EXPECT_TRUE(open().use().bytes == 0 && files().empty()) << kind;  // nothing is left behind
  }
}

TEST_F(Store, AHalfWrittenFileIsSweptAway) {
  open().keep(snapshot(some_ids(100)));
  std::ofstream(dir_ / "k" / "tmp-st-0123") << "half";
  std::ofstream(dir_ / "k" / "kv-0123456789abcdef") << "nobody's";
  CacheStore again = open();
  EXPECT_EQ(again.use().snapshots, 1);
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(Store, AnotherModelsStatesAreNotSeen) {
  open("k").keep(snapshot(some_ids(100)));
  EXPECT_FALSE(open("other").load(some_ids(200), 0));
  EXPECT_TRUE(open("k").load(some_ids(200), 0));
}

TEST_F(Store, TheOldestGoWhenTheLimitIsReached) {
  const auto one = [&] {
    CacheStore s = open();
    s.keep(snapshot(some_ids(100)));
    return s.use().bytes;
  }();
  CacheStore store = open("k", 3 * one);
  for (int i = 1; i < 8; ++i) {
    store.keep(snapshot(some_ids(100, i)));
    EXPECT_LE(store.use().bytes, 3 * one);
  }
  EXPECT_FALSE(store.load(some_ids(150), 0));
  EXPECT_TRUE(store.load([] { Ids i = some_ids(100, 7); i.push_back(1); return i; }(), 0));
  EXPECT_EQ(files().size(), 6u);
}

TEST_F(Store, FilesAreTheirOwnersAlone) {
  open().keep(snapshot(some_ids(100)));
  for (const fs::path& f : files()) EXPECT_EQ(fs::status(f).permissions() & fs::perms::all, fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(fs::status(dir_ / "k").permissions() & fs::perms::all, fs::perms::owner_all);
}

TEST_F(Store, ADirectoryThatCannotBeMadeIsAnError) {
  EXPECT_THROW(CacheStore("/dev/null/x", "k", rig_.backend->state_layout(), fake::kVocab, 1), Error);
}

TEST(StateKey, DependsOnFilesAndArithmetic) {
  const fs::path file = fs::path(::testing::TempDir()) / "weights.bin";
  std::ofstream(file) << std::string(100000, 'a');
  const StateLayout f32(fake::shape(), DType::f32), bf16(fake::shape(), DType::bf16);
  const std::string key = state_key({file}, f32, "fake");
  EXPECT_EQ(key, state_key({file}, f32, "fake"));
  EXPECT_NE(key, state_key({file}, f32, "faked"));
  EXPECT_NE(key, state_key({file}, bf16, "fake"));
  std::ofstream(file) << std::string(100000, 'b');
  EXPECT_NE(key, state_key({file}, f32, "fake"));
  std::ofstream(file) << std::string(100001, 'a');
  EXPECT_NE(key, state_key({file}, f32, "fake"));
}

}  // namespace
}  // namespace lily
