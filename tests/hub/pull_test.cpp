// lily pull against a stand-in hub that misbehaves by repository name (hub_server.py).
#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>

#include "base/digest.h"
#include "stand_in.h"

namespace lily::hub {
namespace {

namespace fs = std::filesystem;

TEST_F(HubTest, BringsWhatAModelNeedsAndNoMore) {
  std::uint64_t last = 0, total = 0;
  options.progress = [&](const PullProgress& at) { last = at.done, total = at.total; };
  const PullReport report = pull("good");
  expect_whole("good");
  EXPECT_EQ(report.dir, model("good"));
  EXPECT_EQ(report.files, 4);
  EXPECT_EQ(report.bytes, report.received);
  EXPECT_EQ(last, report.bytes);
  EXPECT_EQ(total, report.bytes);
  EXPECT_FALSE(fs::exists(model("good") / "pytorch_model.bin"));
  EXPECT_FALSE(fs::exists(model("good") / "onnx"));
}

TEST_F(HubTest, PullingAgainFetchesNothing) {
  pull("good");
  const std::size_t before = hub.log().size();
  EXPECT_EQ(pull("good").received, 0u);
  EXPECT_EQ(hub.log().size(), before + 2);  // the revision and the listing
}

TEST_F(HubTest, PullingAgainMendsADamagedFile) {
  pull("good");
  std::fstream(model("good") / "model.safetensors", std::ios::in | std::ios::out).write("evil", 4);
  fs::last_write_time(model("good") / "model.safetensors", fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_GT(pull("good").received, 300000u);
  expect_whole("good");
}

TEST_F(HubTest, AnIndexSaysWhichShards) {
  EXPECT_EQ(pull("sharded").files, 6);
  EXPECT_TRUE(fs::exists(model("sharded") / "model-1.safetensors"));
  EXPECT_TRUE(fs::exists(model("sharded") / "model-2.safetensors"));
  EXPECT_FALSE(fs::exists(model("sharded") / "stray.safetensors"));
}

TEST_F(HubTest, ReadsAListingOfSeveralPages) {
  EXPECT_EQ(pull("paged").files, 6);
}

TEST_F(HubTest, ARevisionWithASlash) {
  options.revision = "refs/pr/1";
  EXPECT_EQ(pull("good").files, 4);
  options.revision = "refs/pr/2";
  expect_says(error_of("good"), ErrorCode::not_found, "Invalid rev id");
}

TEST_F(HubTest, GoesOnAfterACutInTheSameRun) {
  const PullReport report = pull("cut");
  EXPECT_EQ(report.received, report.bytes);  // nothing came twice
  expect_whole("cut");
  const auto asked = hub.shard_requests();
  EXPECT_TRUE(asked[0]["range"].is_null());
  EXPECT_EQ(asked[1]["range"], "bytes=150000-");
  EXPECT_FALSE(asked[1]["if_range"].is_null());
}

TEST_F(HubTest, AStopKeepsThePartAndTheNextPullGoesOn) {
  std::uint64_t done = 0;
  options.progress = [&](const PullProgress& at) { done = at.done; };
  options.stopped = [&] { return done > 100000; };
  expect_says(error_of("slow"), ErrorCode::cancelled, "stopped");
  const std::uint64_t part = fs::file_size(model("slow") / "model.safetensors.part");
  EXPECT_GT(part, 50000u);
  EXPECT_LT(part, 300000u);
  EXPECT_FALSE(fs::exists(model("slow") / "config.json"));
  options.stopped = nullptr;
  const PullReport report = pull("slow");
  EXPECT_EQ(report.received, report.bytes - part);
  expect_whole("slow");
  EXPECT_EQ(hub.shard_requests()[1]["range"], "bytes=" + std::to_string(part) + "-");
}

TEST_F(HubTest, APartOfOtherContentIsNotGoneOnWith) {
  fs::create_directories(model("good"));
  std::ofstream(model("good") / "model.safetensors.part") << std::string(1000, 'x');
  std::ofstream(model("good") / "model.safetensors.part.json") << R"({"hash": "1234", "etag": "\"a\""})";
  pull("good");
  expect_whole("good");
  EXPECT_TRUE(hub.shard_requests()[0]["range"].is_null());
}

TEST_F(HubTest, ADamagedPartIsFetchedAfresh) {
  std::uint64_t done = 0;
  options.progress = [&](const PullProgress& at) { done = at.done; };
  options.stopped = [&] { return done > 100000; };
  error_of("slow");
  std::fstream(model("slow") / "model.safetensors.part", std::ios::in | std::ios::out).write("evil", 4);
  options.stopped = nullptr;
  pull("slow");
  expect_whole("slow");
}

TEST_F(HubTest, AServerWithoutRangesSendsAllAgain) {
  EXPECT_GT(pull("norange").received, 400000u);
  expect_whole("norange");
}

TEST_F(HubTest, AWrongRangeIsNotSpliced) {
  pull("wrong-range");
  expect_whole("wrong-range");
}

TEST_F(HubTest, AFileThatChangedIsNotSpliced) {
  pull("changed");
  expect_whole("changed");
  EXPECT_EQ(hub.shard_requests().size(), 2u);  // If-Range brought the whole new file
}

TEST_F(HubTest, AFileThatWasSplicedIsFetchedAfresh) {
  pull("spliced");
  expect_whole("spliced");
  EXPECT_EQ(hub.shard_requests().size(), 3u);  // the hash found the splice
}

TEST_F(HubTest, ABusyHubIsAskedAgain) {
  pull("busy");
  expect_whole("busy");
}

TEST_F(HubTest, ADeadServerIsGivenUpAndThePartStays) {
  expect_says(error_of("dead"), ErrorCode::io, "run the same command again to go on");
  EXPECT_EQ(hub.shard_requests().size(), 5u);
}

TEST_F(HubTest, AWrongHashIsAnErrorAndLeavesNothing) {
  expect_says(error_of("bad-hash"), ErrorCode::corrupt, "the hub lists 0000000000");
  EXPECT_FALSE(fs::exists(model("bad-hash") / "model.safetensors"));
  EXPECT_FALSE(fs::exists(model("bad-hash") / "model.safetensors.part"));
  EXPECT_FALSE(fs::exists(model("bad-hash") / "config.json"));
}

TEST_F(HubTest, ASmallFileIsCheckedToo) {
  expect_says(error_of("bad-config"), ErrorCode::corrupt, "its git hash is");
  EXPECT_FALSE(fs::exists(model("bad-config") / "config.json"));
}

TEST_F(HubTest, AFileOfAnotherLengthIsRefused) {
  expect_says(error_of("long"), ErrorCode::corrupt, "300000 are missing, but sends 300004");
}

TEST_F(HubTest, MissingThingsAreNamed) {
  expect_says(error_of("gone"), ErrorCode::not_found, "file model.safetensors");
  expect_says(error_of("no-such-repository"), ErrorCode::not_found, "acme/no-such-repository");
  expect_says(error_of("no-shard"), ErrorCode::not_found, "model-9.safetensors");
  expect_says(error_of("no-tokenizer"), ErrorCode::not_found, "tokenizer.json");
  expect_says(error_of("no-weights"), ErrorCode::not_found, "*.safetensors");
  EXPECT_FALSE(fs::exists(model("no-shard")));  // nothing was begun
}

TEST_F(HubTest, APrivateRepositoryNeedsTheToken) {
  expect_says(error_of("private"), ErrorCode::unsupported, "HF_TOKEN");
  options.token = "wrong";
  expect_says(error_of("private"), ErrorCode::unsupported, "401");
  options.token = "hf_stand_in";
  pull("private");
  expect_whole("private");
}

TEST_F(HubTest, TheTokenDoesNotFollowARedirectElsewhere) {
  options.token = "hf_stand_in";
  pull("redirect");
  expect_whole("redirect");
  int elsewhere = 0;
  for (const auto& entry : hub.log()) {
    const bool other = entry["port"] == hub.other_port();
    elsewhere += other ? 1 : 0;
    EXPECT_EQ(entry["token"].is_null(), other) << entry.dump();
  }
  EXPECT_EQ(elsewhere, 4);
}

TEST_F(HubTest, RedirectsThatNeverEnd) {
  expect_says(error_of("loop"), ErrorCode::io, "more than ten redirects");
}

TEST_F(HubTest, HostileNamesAreRefusedBeforeAnythingIsWritten) {
  for (const char* name : {"up", "absolute", "backslash", "control", "dots", "index-escapes"}) {
    const Error error = error_of(name);
    expect_says(error, ErrorCode::corrupt, "is refused");
    EXPECT_EQ(std::string(error.what()).find('\x1b'), std::string::npos);
  }
  EXPECT_FALSE(fs::exists(options.models_dir));
}

TEST_F(HubTest, LinksInTheModelsFolderAreNotWrittenThrough) {
  fs::create_directories(model("good"));
  std::ofstream(dir / "precious") << "mine";
  fs::create_symlink(dir / "precious", model("good") / "model.safetensors.part");
  expect_says(error_of("good"), ErrorCode::io, "symbolic link");
  fs::remove(model("good") / "model.safetensors.part");
  fs::create_symlink(dir / "precious", model("good") / "model.safetensors");
  pull("good");
  expect_whole("good");
  EXPECT_EQ(text_of(dir / "precious"), "mine");
}

TEST_F(HubTest, AnswersThatMakeNoSense) {
  expect_says(error_of("not-json"), ErrorCode::corrupt, "not JSON");
  expect_says(error_of("no-size"), ErrorCode::corrupt, "without a size");
}

TEST_F(HubTest, WhatTheUserSaysIsChecked) {
  const auto refused = [&](const std::string& repo) {
    try {
      lily::hub::pull(repo, options);
    } catch (const Error& error) {
      return error.code() == ErrorCode::invalid_argument;
    }
    return false;
  };
  for (const char* repo : {"", "/", "a/", "/a", "a/b/c", "a b", "../..", "a/..", "-x/y", "a/b?c"}) {
    EXPECT_TRUE(refused(repo)) << repo;
  }
  options.name = "../out";
  expect_says(error_of("good"), ErrorCode::invalid_argument, "holds a '/'");
  options.name.clear();
  options.endpoint = "";
  expect_says(error_of("good"), ErrorCode::invalid_argument, "HF_ENDPOINT is not set");
  options.endpoint = "ftp://127.0.0.1";
  expect_says(error_of("good"), ErrorCode::invalid_argument, "HF_ENDPOINT");
  options.endpoint = "http://hub.invalid";
  options.token = "secret";
  expect_says(error_of("good"), ErrorCode::invalid_argument, "unencrypted");
}

TEST_F(HubTest, ANameHoldsOneRepository) {
  pull("good");
  try {
    lily::hub::pull("other/good", options);
    ADD_FAILURE() << "overwritten";
  } catch (const Error& error) {
    expect_says(error, ErrorCode::invalid_argument, "holds acme/good");
  }
}

TEST_F(HubTest, TheCallerMayRefuseTheModelByItsConfig) {
  options.check_config = [](const std::string& config) { throw Error(ErrorCode::unsupported, "seen: " + config); };
  expect_says(error_of("good"), ErrorCode::unsupported, "qwen3_5_moe");
  EXPECT_FALSE(fs::exists(options.models_dir));
}

TEST_F(HubTest, AWriteThatFailsForWantOfRoom) {
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = 100000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Error error = error_of("good");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  expect_says(error, ErrorCode::io, "200000 more bytes are needed");
  EXPECT_EQ(fs::file_size(model("good") / "model.safetensors.part"), 100000u);
  EXPECT_EQ(pull("good").received, 300000u + 29 + 13 + 10 - 100000);
  expect_whole("good");
}

#ifdef __linux__
TEST_F(HubTest, ADiskThatIsTooSmallIsNoticedFirst) {
  fs::create_directories(options.models_dir);
  if (::mount("tmpfs", options.models_dir.c_str(), "tmpfs", 0, "size=128k") != 0) {
    GTEST_SKIP() << "needs the right to mount a small file system";
  }
  const Error error = error_of("good");
  EXPECT_TRUE(hub.shard_requests().empty());
  ::umount(options.models_dir.c_str());
  expect_says(error, ErrorCode::io, "300052 more bytes are needed, 1");
}
#endif

TEST(Digest, KnownHashes) {
  Digest sha256(Digest::Kind::sha256, 3);
  sha256.update("abc");
  EXPECT_EQ(sha256.finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");  // FIPS 180-2
  Digest blob(Digest::Kind::git_blob, 0);
  EXPECT_EQ(blob.finish(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");  // git's empty blob
}

TEST(Origin, IsSchemeHostAndPort) {
  EXPECT_EQ(url_origin("https://HUB.invalid/x"), url_origin("https://hub.invalid:443/y?z"));
  EXPECT_NE(url_origin("https://hub.invalid"), url_origin("http://hub.invalid"));
  EXPECT_NE(url_origin("https://hub.invalid"), url_origin("https://hub.invalid:444"));
  EXPECT_NE(url_origin("https://hub.invalid"), url_origin("https://hub.invalid.evil.invalid"));
  EXPECT_EQ(url_origin("https://a@b.invalid"), url_origin("https://b.invalid"));
  EXPECT_THROW(url_origin("hub.invalid"), Error);
  EXPECT_THROW(url_origin("file:///etc/passwd"), Error);
}

}  // namespace
}  // namespace lily::hub
