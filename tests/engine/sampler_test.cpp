#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "engine/sampling_defaults.h"
#include "temp_dir.h"

namespace lily {
namespace {

using Ids = std::vector<std::int32_t>;

/// The definition in sampler.h, in the plainest form: every token, full sort, double.
std::vector<double> slow_distribution(const std::vector<float>& logits, const SamplerOptions& o, const Ids& prompt,
                                      const Ids& generated) {
  const std::size_t n = logits.size();
  std::vector<double> l(logits.begin(), logits.end());
  for (const auto& [id, bias] : o.logit_bias) l[id] += bias;
  std::map<std::int32_t, int> times;
  for (const auto id : generated) ++times[id];
  std::set<std::int32_t> seen(prompt.begin(), prompt.end());
  seen.insert(generated.begin(), generated.end());
  for (const auto id : seen) l[id] = l[id] > 0 ? l[id] / o.repetition_penalty : l[id] * o.repetition_penalty;
  for (const auto& [id, count] : times) l[id] -= o.frequency_penalty * count + o.presence_penalty;

  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return l[a] > l[b]; });
  if (o.top_k > 0 && std::size_t(o.top_k) < n) order.resize(o.top_k);
  std::vector<double> p(n, 0);
  double total = 0;
  for (const int i : order) total += std::exp((l[i] - l[order[0]]) / o.temperature);
  double sum = 0;
  std::size_t kept = 0;
  for (const int i : order) {
    p[i] = std::exp((l[i] - l[order[0]]) / o.temperature) / total;
    sum += p[i];
    ++kept;
    if (o.top_p < 1 && sum >= o.top_p) break;
  }
  total = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    double& x = p[order[i]];
    if (x < o.min_p * p[order[0]]) x = 0;
    total += x;
  }
  for (double& x : p) x /= total;
  return p;
}

std::vector<int> draw_many(const std::vector<float>& logits, SamplerOptions o, const Ids& prompt, const Ids& generated,
                           int n) {
  std::vector<int> counts(logits.size());
  Sampler s(std::move(o));
  s.see_prompt(prompt);
  for (const auto id : generated) s.accept(id);
  for (int i = 0; i < n; ++i) ++counts[s.sample(logits)];
  return counts;
}

/// Are `counts` drawn from `p`? Chi-square with tokens expected fewer than 5 times pooled. The bound is Laurent and
/// Massart's tail: P(chi2 > d + 2 sqrt(d x) + 2 x) <= e^-x for d degrees of freedom; x = 16 makes a false alarm 1e-7.
/// Tokens without probability must not occur at all.
bool agrees(const std::vector<int>& counts, const std::vector<double>& p) {
  const double n = std::accumulate(counts.begin(), counts.end(), 0);
  double chi2 = 0, rare_expected = 0, rare_found = 0;
  int bins = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0 && counts[i] > 0) return false;
    if (p[i] * n < 5) {
      rare_expected += p[i] * n;
      rare_found += counts[i];
      continue;
    }
    ++bins;
    chi2 += std::pow(counts[i] - p[i] * n, 2) / (p[i] * n);
  }
  if (rare_expected >= 1) {
    ++bins;
    chi2 += std::pow(rare_found - rare_expected, 2) / rare_expected;
  }
  const double d = std::max(1, bins - 1), x = 16;
  return chi2 <= d + 2 * std::sqrt(d * x) + 2 * x;
}

std::vector<float> test_logits(int n, std::uint64_t salt) {
  std::vector<float> l(n);
  for (int i = 0; i < n; ++i) l[i] = float(8 * uniform_draw(salt, i) - 3);
  return l;
}

constexpr int kDraws = 20000;

struct Case {
  const char* name;
  SamplerOptions options;
};

std::vector<Case> cases() {
  const std::vector<std::pair<std::int32_t, float>> bias = {{3, 2.5f}, {7, -100.f}, {11, 1.f}};
  return {
      {"neutral", {}},
      {"cold", {.temperature = 0.4}},
      {"hot", {.temperature = 2.5}},
      {"top_k", {.top_k = 5}},
      {"top_k of one", {.top_k = 1}},
      {"top_p", {.top_p = 0.7}},
      {"top_p of nearly all", {.top_p = 0.999}},
      {"min_p", {.min_p = 0.1}},
      {"temperature before the cuts", {.temperature = 1.7, .top_p = 0.8, .min_p = 0.05}},
      {"all cuts", {.temperature = 0.8, .top_k = 20, .top_p = 0.9, .min_p = 0.03}},
      {"presence", {.presence_penalty = 1.5}},
      {"frequency", {.frequency_penalty = 0.7}},
      {"negative frequency", {.frequency_penalty = -0.4}},
      {"repetition", {.repetition_penalty = 1.6}},
      {"bias", {.logit_bias = bias}},
      {"everything",
       {.temperature = 1.2,
        .top_k = 25,
        .top_p = 0.95,
        .min_p = 0.01,
        .presence_penalty = 0.5,
        .frequency_penalty = 0.3,
        .repetition_penalty = 1.2,
        .logit_bias = bias}},
  };
}

const Ids kPrompt = {1, 2, 3, 4, 5, 30, 31, 32};
const Ids kGenerated = {2, 2, 2, 9, 10, 33, 33, 0};

TEST(Sampler, DrawsFromTheDefinedDistribution) {
  const auto logits = test_logits(40, 1);
  for (Case c : cases()) {
    c.options.seed = 12345;
    const auto counts = draw_many(logits, c.options, kPrompt, kGenerated, kDraws);
    EXPECT_TRUE(agrees(counts, slow_distribution(logits, c.options, kPrompt, kGenerated))) << c.name;
  }
}

TEST(Sampler, TheStatisticsTellEveryOptionFromItsAbsence) {  // the control of the test above
  const auto logits = test_logits(40, 1);
  const auto differs = [&](SamplerOptions drawn, SamplerOptions claimed) {
    drawn.seed = 99;
    return !agrees(draw_many(logits, drawn, kPrompt, kGenerated, kDraws),
                   slow_distribution(logits, claimed, kPrompt, kGenerated));
  };
  EXPECT_TRUE(differs({}, {.temperature = 1.1}));
  EXPECT_TRUE(differs({.top_k = 6}, {.top_k = 5}));
  EXPECT_TRUE(differs({.top_k = 5}, {.top_k = 6}));
  EXPECT_TRUE(differs({.top_p = 0.75}, {.top_p = 0.65}));
  EXPECT_TRUE(differs({.min_p = 0.1}, {.min_p = 0.2}));
  EXPECT_TRUE(differs({}, {.presence_penalty = 1}));
  EXPECT_TRUE(differs({}, {.frequency_penalty = 0.6}));
  EXPECT_TRUE(differs({}, {.repetition_penalty = 1.2}));
  EXPECT_TRUE(differs({}, {.logit_bias = {{3, 0.5f}}}));
  // presence and frequency do not count the prompt, repetition does
  const auto with_prompt_counted = [&](SamplerOptions o) {
    o.seed = 7;
    Ids all = kPrompt;
    all.insert(all.end(), kGenerated.begin(), kGenerated.end());
    return agrees(draw_many(logits, o, kPrompt, kGenerated, kDraws), slow_distribution(logits, o, {}, all));
  };
  EXPECT_FALSE(with_prompt_counted({.presence_penalty = 1.5}));
  EXPECT_FALSE(with_prompt_counted({.frequency_penalty = 1.5}));
  EXPECT_TRUE(with_prompt_counted({.repetition_penalty = 1.6}));
}

TEST(Sampler, CutsLargeVocabulariesAsSmallOnes) {
  // Several rounds of the partial selections; ties on purpose (logits on a coarse grid).
  std::vector<float> logits(5000);
  for (int i = 0; i < 5000; ++i) logits[i] = float(std::floor(40 * std::pow(uniform_draw(3, i), 8)) / 8);
  for (SamplerOptions o :
       {SamplerOptions{.top_k = 100}, SamplerOptions{.top_k = 700}, SamplerOptions{.top_p = 0.6},
        SamplerOptions{.top_p = 0.97}, SamplerOptions{.min_p = 0.02}, SamplerOptions{.top_k = 4999}}) {
    o.seed = 5;
    const auto p = slow_distribution(logits, o, {}, {});
    EXPECT_TRUE(agrees(draw_many(logits, o, {}, {}, 3000), p)) << o.top_k << " " << o.top_p << " " << o.min_p;
  }
}

TEST(Sampler, TemperatureZeroIsGreedyAndTiesGoToTheLowerId) {
  Sampler s({.temperature = 0, .top_k = 3, .top_p = 0.1, .seed = 1});
  EXPECT_EQ(s.sample(std::vector<float>{0, 2, 5, 5, 1, 5}), 2);
  EXPECT_EQ(s.sample(std::vector<float>{5, 2, 5}), 0);
  EXPECT_EQ(s.sample(std::vector<float>{-3, -2, -2}), 1);
  Sampler penalized({.temperature = 0, .presence_penalty = 1});
  EXPECT_EQ(penalized.sample(std::vector<float>{1, 1.5f, 0}), 1);
  penalized.accept(1);
  EXPECT_EQ(penalized.sample(std::vector<float>{1, 1.5f, 0}), 0);
  Sampler tied({.top_k = 2, .seed = 3});  // of equal logits the lower ids are kept
  for (int i = 0; i < 50; ++i) EXPECT_LT(tied.sample(std::vector<float>{1, 1, 1, 1}), 2);
}

TEST(Sampler, TopPOfZeroAndMinPOfOneStillLeaveTheLikeliest) {
  Sampler a({.top_p = 0, .seed = 1}), b({.min_p = 1, .seed = 1});
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(a.sample(std::vector<float>{0, 3, 2.9f}), 1);
    EXPECT_EQ(b.sample(std::vector<float>{0, 3, 2.9f}), 1);
  }
}

Ids sequence(std::optional<std::uint64_t> seed, int n) {
  Sampler s({.seed = seed});
  const auto logits = test_logits(50, 2);
  Ids ids;
  for (int i = 0; i < n; ++i) ids.push_back(s.sample(logits));
  return ids;
}

TEST(Sampler, SameSeedSameTextOtherSeedAnother) {
  EXPECT_EQ(sequence(42, 64), sequence(42, 64));
  EXPECT_NE(sequence(42, 64), sequence(43, 64));
  EXPECT_NE(sequence(0, 64), sequence({}, 64));   // no seed is not seed 0 …
  EXPECT_NE(sequence({}, 64), sequence({}, 64));  // … but another one each time
  Sampler s({.seed = 42});
  EXPECT_EQ(s.seed(), 42u);
}

TEST(Sampler, TheGeneratorsNumbersNeverChange) {
  // Fixed for ever: a seed that someone wrote down has to give the same text on every machine and version.
  EXPECT_EQ(uniform_draw(0, 0), uniform_draw(0, 0));
  EXPECT_NE(uniform_draw(1, 0), uniform_draw(0, 1));  // streams of neighbouring seeds are not shifted copies
  EXPECT_DOUBLE_EQ(uniform_draw(42, 0), 0.34329192209867343);
  EXPECT_DOUBLE_EQ(uniform_draw(42, 1), 0.9557467261317436);
  double sum = 0, squares = 0;
  constexpr int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double u = uniform_draw(7, i);
    EXPECT_GE(u, 0);
    EXPECT_LT(u, 1);
    sum += u;
    squares += u * u;
  }
  // Mean 1/2 and second moment 1/3; five standard errors of each.
  EXPECT_NEAR(sum / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(squares / n, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / n));
}

TEST(Sampler, RefusesValuesOutsideTheirRangeByName) {
  const auto refused = [](SamplerOptions o, const char* name) {
    try {
      Sampler s(o);
      ADD_FAILURE() << name << " was taken";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(name), std::string::npos) << e.what();
    }
  };
  refused({.temperature = -0.1}, "temperature");
  refused({.temperature = NAN}, "temperature");
  refused({.top_k = -1}, "top_k");
  refused({.top_p = 1.1}, "top_p");
  refused({.min_p = -0.1}, "min_p");
  refused({.presence_penalty = 3}, "presence_penalty");
  refused({.frequency_penalty = -3}, "frequency_penalty");
  refused({.repetition_penalty = 0}, "repetition_penalty");
  refused({.logit_bias = {{5, 101.f}}}, "logit_bias");
  Sampler outside({.logit_bias = {{50, 1.f}}});
  EXPECT_THROW(outside.sample(std::vector<float>{1, 2}), Error);
  Sampler nan({});
  EXPECT_THROW(nan.sample(std::vector<float>{NAN, NAN}), Error);
  EXPECT_THROW(nan.sample({}), Error);
}

TEST(SamplingDefaults, RequestBeatsFlagBeatsFileBeatsNeutralAndZeroCounts) {
  const auto file = read_generation_config(std::string(LILY_SOURCE_DIR) + "/models/tiny");
  EXPECT_EQ(file.temperature, 0.3);
  EXPECT_EQ(file.top_k, 20);
  EXPECT_EQ(file.top_p, 0.9);
  EXPECT_FALSE(file.min_p);
  SamplingFields request, flags;
  request.top_k = 0;
  flags.top_k = 7;
  flags.temperature = 0.0;
  const SamplerOptions o = request.or_else(flags).or_else(file).options();
  EXPECT_EQ(o.top_k, 0);
  EXPECT_EQ(o.temperature, 0);
  EXPECT_EQ(o.top_p, 0.9);
  EXPECT_EQ(o.min_p, 0);
  EXPECT_EQ(o.repetition_penalty, 1);
  EXPECT_FALSE(read_generation_config("/nonexistent").temperature);
}

TEST(SamplingDefaults, GenerationConfigIsHonouredOrRefusedByName) {
  TempDir dir;
  const auto read = [&](const std::string& fields) {
    write_bytes(dir / "generation_config.json", "{" + fields + "}");
    return read_generation_config(dir.path());
  };
  EXPECT_EQ(read(R"("top_k": 1000000000, "top_p": null)").top_k, 1000000000);
  EXPECT_EQ(read(R"("top_k": 20.0)").top_k, 20);
  EXPECT_EQ(read(R"("temperature": 0.7, "do_sample": false)").temperature, 0.0);
  EXPECT_EQ(read(R"("temperature": 0.7, "do_sample": true)").temperature, 0.7);
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{{"top_k", "4294967297"},
                                                                                   {"top_k", "3.7"},
                                                                                   {"top_k", "1e+30"},
                                                                                   {"top_k", "-1"},
                                                                                   {"top_k", "true"},
                                                                                   {"top_p", "1.5"},
                                                                                   {"min_p", "-0.5"},
                                                                                   {"temperature", "\"hot\""},
                                                                                   {"temperature", "-1"},
                                                                                   {"presence_penalty", "3"},
                                                                                   {"frequency_penalty", "-3"},
                                                                                   {"repetition_penalty", "0"},
                                                                                   {"do_sample", "0"},
                                                                                   {"do_sample", "\"false\""}}) {
    try {
      read("\"" + key + "\": " + value);
      ADD_FAILURE() << key << " " << value;
    } catch (const Error& e) {
      const std::string said = e.what();
      EXPECT_EQ(said.find((dir / "generation_config.json").string() + ": " + key + ": expected "), 0u) << said;
      EXPECT_NE(said.find("found " + value), said.npos) << said;
    }
  }
}

TEST(SamplingDefaults, FieldsWithoutEffectAreListedUnlessTheySayNothing) {
  TempDir dir;
  const auto warned = [&](const std::string& fields) {
    write_bytes(dir / "generation_config.json", "{" + fields + "}");
    testing::internal::CaptureStderr();
    read_generation_config(dir.path());
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warned(R"("num_beams": 1, "typical_p": 1.0, "stop_strings": null, "suppress_tokens": [], "min_length": 0,
                      "no_repeat_ngram_size": 0, "transformers_version": "4.57", "penalty_alpha": false)"),
            "");
  const std::string said = warned(R"("num_beams": 4, "typical_p": 0.9, "stop_strings": ["x"], "suppress_tokens": [1],
                                     "no_repeat_ngram_size": 3, "forced_eos_token_id": 7, "top_k": 20)");
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(
      said.find("forced_eos_token_id, no_repeat_ngram_size, num_beams, stop_strings, suppress_tokens, typical_p\n"),
      said.npos)
      << said;
}

}  // namespace
}  // namespace lily
