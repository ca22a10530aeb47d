#include "bench/peer.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lily::bench {
namespace {

using plan::Phase;

template <class F>
std::string refused(F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Peer, WordsInBracesStandForTheRow) {
  const std::string bench = "b -p {prefill} -n {steps} -d {context}";
  EXPECT_EQ(peer_command(bench, Phase::prefill, 512, 32), "b -p 512 -n 0 -d 0");
  EXPECT_EQ(peer_command(bench, Phase::decode, 512, 32), "b -p 0 -n 32 -d 512");
  EXPECT_EQ(peer_command("x {phase} {n}{n} ${HOME} {} { n }", Phase::decode, 7, 1), "x decode 77 ${HOME} {} { n }");
  EXPECT_TRUE(has(refused([] { peer_command("x {n} {length}", Phase::decode, 7, 1); }), "{length}"));
  EXPECT_TRUE(has(refused([] { peer_command("x {phase}", Phase::decode, 7, 1); }), "{n}"));
}

TEST(Peer, TheFigureIsReadFromWhatProgramsPrint) {
  EXPECT_EQ(peer_figure(R"([{"n_prompt": 512, "avg_ts": 31.25, "stddev_ts": 0.5}, {"avg_ts" : 4.75}])"), 4.75);
  EXPECT_EQ(peer_figure("| model      |  size | test  |              t/s |\n"
                        "| ---------- | ----: | ----: | ---------------: |\n"
                        "| qwen 4.5 B | 4 GiB | pp512 |     31.05 ± 0.12 |\n"
                        "| qwen 4.5 B | 4 GiB | tg32  |      8.50 ± 0.01 |\n"
                        "\nbuild: 1234 (5)\n"),
            8.5);
  EXPECT_EQ(peer_figure("prompt: 47.5 tok/s\neval time = 12 ms (3.5 ms per token, 285.71 tokens per second)\n"),
            285.71);
  EXPECT_EQ(peer_figure("Generation: 32 tokens, 140.900 tokens/s\nPeak memory: 20.1 GB"), 140.9);
  EXPECT_EQ(peer_figure("1.2e3t/s"), 1200);
  // JSON before a table, a table before text, whatever comes last.
  EXPECT_EQ(peer_figure("\"avg_ts\": 3\n| t/s |\n| 4 |\n5 tok/s"), 3);
  EXPECT_EQ(peer_figure("5 tok/s\n| t/s |\n| 4 |\n6 tok/s"), 4);
  for (const char* none : {"", "tok/s", "fast", "12 ms", "0 tok/s", "| t/s |\n| - |\n", "12 tokens"})
    EXPECT_LT(peer_figure(none), 0) << none;
}

TEST(Peer, RunsByTheShellAndQuotesWhatWentWrong) {
  EXPECT_EQ(run_peer("echo starting; echo '2.5 tok/s' >&2 # a comment"), 2.5);
  const auto failed = refused([] { run_peer("echo 9 tok/s; echo no model >&2; exit 3"); });
  EXPECT_TRUE(has(failed, "exit status 3") && has(failed, "no model")) << failed;
  EXPECT_TRUE(has(refused([] { run_peer("echo hello"); }), "hello"));
  EXPECT_TRUE(has(refused([] { run_peer("kill -9 $$"); }), "signal"));
}

}  // namespace
}  // namespace lily::bench
