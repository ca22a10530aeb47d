#include "bench/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/plot.h"

namespace lily::bench {
namespace {

using nlohmann::json;
using plan::Phase;

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

Row row(Phase phase, int n, double tok_s) {
  Row r{.phase = phase, .n = n, .reps = 3, .tok_s = {tok_s, tok_s - 1, tok_s + 1}, .work = {1.5e6, 4e9, 1e9}};
  r.bandwidth_share = 0.875;
  r.compute_share = 0.25;
  r.limit_tok_s = tok_s / 0.875;
  r.logits_hash = "0123456789abcdef";
  return r;
}

Report report() {
  Report r{.machine = "a & b",
           .backend = "cpu (x)",
           .model = "<m>",
           .peer = "peer \"{n}\"",
           .steps = 32,
           .read_bytes_per_s = 20e9,
           .int8_ops_per_s = 900e9};
  r.rows = {row(Phase::prefill, 256, 40), row(Phase::prefill, 512, 44), row(Phase::prefill, 512, 22),
            row(Phase::decode, 256, 10)};
  r.rows[2].ablated = "register-scan";
  r.rows[2].speedup = 2;
  r.rows[3].peer = PeerFigures{{5, 4, 6}, 2.0};
  r.rows[1].stages = {{"attention", 0.25}, {"linear", 0.75}};
  r.skipped = {{Phase::decode, 131072, "too long"}};
  return r;
}

TEST(Report, JsonHasTheFieldsThatAreAgreed) {
  const json j = json::parse(report_json(report()));
  EXPECT_EQ(j["machine"], "a & b");
  EXPECT_EQ(j["backend"], "cpu (x)");
  EXPECT_EQ(j["model"], "<m>");
  EXPECT_EQ(j["measured_read_gb_s"], 20);
  ASSERT_EQ(j["rows"].size(), 4u);
  const json& plain = j["rows"][0];
  EXPECT_EQ(plain["phase"], "prefill");
  EXPECT_EQ(plain["n"], 256);
  EXPECT_EQ(plain["tok_s_median"], 40);
  EXPECT_EQ(plain["tok_s_min"], 39);
  EXPECT_EQ(plain["tok_s_max"], 41);
  EXPECT_EQ(plain["reps"], 3);
  EXPECT_EQ(plain["bytes_per_token"], 1.5e6);
  EXPECT_EQ(plain["bandwidth_share"], 0.875);
  EXPECT_EQ(plain["compute_share"], 0.25);
  EXPECT_EQ(plain["logits_hash"], "0123456789abcdef");
  EXPECT_FALSE(plain.contains("ablated") || plain.contains("peer_tok_s_median") || plain.contains("stage_shares"));
  EXPECT_EQ(j["rows"][1]["stage_shares"], json::parse(R"({"attention": 0.25, "linear": 0.75})"));
  EXPECT_EQ(j["rows"][2]["ablated"], "register-scan");
  EXPECT_EQ(j["rows"][2]["speedup"], 2);
  EXPECT_EQ(j["rows"][3]["peer_tok_s_median"], 5);
  EXPECT_EQ(j["rows"][3]["peer_ratio"], 2);
  EXPECT_EQ(j["skipped"], json::parse(R"([{"phase": "decode", "n": 131072, "why": "too long"}])"));
}

TEST(Report, WhatWasNotMeasuredIsNullAndADash) {
  Report r = report();
  r.read_bytes_per_s = r.int8_ops_per_s = 0;
  r.rows[0].bandwidth_share.reset();
  r.rows[0].limit_tok_s = 0;
  const json j = json::parse(report_json(r));
  EXPECT_TRUE(j["measured_read_gb_s"].is_null());
  EXPECT_TRUE(j["rows"][0]["bandwidth_share"].is_null() && j["rows"][0]["limit_tok_s"].is_null());
  EXPECT_NE(table_row(r.rows[0]).find(" - "), std::string::npos);
  EXPECT_EQ(table_foot(r).find("limits"), std::string::npos);
}

TEST(Report, TheTableSaysTheSame) {
  const Report r = report();
  EXPECT_NE(table_head(r).find("peer \"{n}\""), std::string::npos);
  const std::string plain = table_row(r.rows[0]);
  for (const char* part : {"prefill", "256", "40.0 (39.0 … 41.0)", "1.50", "87.5 %", "25.0 %", "0123456789abcdef"})
    EXPECT_NE(plain.find(part), std::string::npos) << part;
  EXPECT_NE(table_row(r.rows[2]).find("2.000"), std::string::npos);
  EXPECT_NE(table_row(r.rows[2]).find("without register-scan"), std::string::npos);
  const std::string staged = table_row(r.rows[1]);  // the largest share first
  EXPECT_LT(staged.find("75.0 %  linear"), staged.find("25.0 %  attention"));
  EXPECT_EQ(count(staged, "\n"), 3);
  EXPECT_EQ(count(table_row(r.rows[3]), "\n"), 2);  // Lily, and the peer below
  EXPECT_NE(table_row(r.rows[3]).find("5.00 (4.00 … 6.00)"), std::string::npos);
  EXPECT_NE(table_skipped(r.skipped[0]).find("too long"), std::string::npos);
  Row unstable = r.rows[0];
  unstable.same_hash = false;
  EXPECT_NE(table_row(unstable), plain);
}

// That it is well-formed XML is checked by tests/e2e/test_bench.py, with a parser.
TEST(Plot, ShowsEveryPlainRowThePeerAndTheLimit) {
  const std::string svg = plot_svg(report());
  EXPECT_EQ(count(svg, "class=\"dot lily\""), 3);  // two prefill lengths, one context; the ablated row is not drawn
  EXPECT_EQ(count(svg, "class=\"dot peer\""), 1);
  EXPECT_EQ(count(svg, "class=\"dot limit\""), 3);
  EXPECT_NE(svg.find("&lt;m&gt;"), std::string::npos);
  EXPECT_NE(svg.find("a &amp; b"), std::string::npos);
  EXPECT_NE(svg.find("prefers-color-scheme:dark"), std::string::npos);
  Report prefill_only = report();
  prefill_only.rows.pop_back();
  EXPECT_EQ(count(plot_svg(prefill_only), "not measured"), 1);
  EXPECT_EQ(plot_svg(Report()).find("nan"), std::string::npos);
}

// Equal distances for equal factors: a point in the middle of 256 and 1024 is 512.
TEST(Plot, TheXAxisIsLogarithmic) {
  Report r = report();
  r.rows = {row(Phase::prefill, 256, 40), row(Phase::prefill, 512, 40), row(Phase::prefill, 1024, 40)};
  const std::string svg = plot_svg(r), points = "<polyline points=\"";
  const std::size_t at = svg.find("class=\"lily\"");
  ASSERT_NE(at, std::string::npos);
  const std::size_t begin = svg.rfind(points, at) + points.size();
  double x[3], y[3];
  ASSERT_EQ(std::sscanf(svg.c_str() + begin, "%lf,%lf %lf,%lf %lf,%lf", &x[0], &y[0], &x[1], &y[1], &x[2], &y[2]), 6);
  EXPECT_NEAR(x[1], (x[0] + x[2]) / 2, 0.11);
  EXPECT_LT(x[0], x[1]);
  EXPECT_EQ(y[0], y[2]);
}

}  // namespace
}  // namespace lily::bench
