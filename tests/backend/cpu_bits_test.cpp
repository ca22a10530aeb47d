// A row's bits depend on its own inputs and position alone: not on chunks, splits, threads, neighbours in the batch,
// nor on where other rows of the same conversation lie. Compared: logits, recurrent state, convolution windows and KV,
// bit by bit.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "backend/cpu/dispatch.h"
#include "support/drive.h"
#include "support/golden.h"
#include "support/synthetic_model.h"

namespace lily {
namespace {

using plan::Phase;

constexpr int kTokens = 75;  // several key blocks, scan blocks and row tiles, and a ragged end of each

constexpr auto model = test::t1_model;

std::vector<std::int32_t> some_ids(unsigned seed, int n) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back(std::int32_t(random() % std::uint32_t(model()->shape.vocab)));
  return ids;
}

/// Everything that a pass leaves behind.
struct Outcome {
  std::vector<float> logits;
  RecurrentState recurrent;
  std::vector<std::byte> kv;
};

std::vector<std::byte> kv_bytes(const SequenceState& s) {  // K and V of the positions written, which is what may be compared
  std::vector<std::byte> out;
  const std::size_t bytes = dtype_bytes(s.layout.kv_type);
  for (int a = 0; a < s.layout.attention_layers; ++a)
    for (bool v : {false, true})
      for (int h = 0; h < s.layout.kv_heads; ++h)
        for (std::int64_t p = 0; p < s.length; ++p)
          for (int c = 0; c < s.layout.head_dim; ++c) {
            const int slot = int(p % kKvBlockTokens);
            const std::byte* from = s.blocks[std::size_t(p / kKvBlockTokens)]->data() + s.layout.kv_offset(a, v, h) +
                                    std::size_t(v ? s.layout.v_index(slot, c) : s.layout.k_index(slot, c)) * bytes;
            out.insert(out.end(), from, from + bytes);
          }
  return out;
}

/// As memory: −0 is not 0, and a NaN equals itself.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}
void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_TRUE(same_bits(a.logits, b.logits)) << what << ": logits";
  EXPECT_TRUE(same_bits(a.recurrent.recurrent, b.recurrent.recurrent)) << what << ": recurrent state";
  EXPECT_TRUE(same_bits(a.recurrent.conv, b.recurrent.conv)) << what << ": convolution window";
  EXPECT_TRUE(same_bits(a.kv, b.kv)) << what << ": KV";
}

Outcome outcome(std::vector<float> logits, const SequenceState& s) {
  return {std::move(logits), s.recurrent, kv_bytes(s)};
}

Outcome forced(Backend& backend, std::span<const std::int32_t> ids, std::vector<int> split, Phase phase) {
  SequenceState state(backend.state_layout());
  auto logits = test::teacher_forced(backend, state, ids, model()->shape.vocab, std::move(split), phase);
  return outcome(std::move(logits), state);
}

std::unique_ptr<Backend> backend(BackendOptions o, int threads = 2) {
  o.name = "cpu";
  o.threads = threads;
  return make_backend(model()->weights, o);
}

std::vector<BackendOptions> modes() {
  return {{.exact = true}, {}, {.prefill_activations = plan::Activations::int16, .decode_activations = plan::Activations::int8}};
}

TEST(CpuBits, SplitsOfAPrompt) {
  const auto ids = some_ids(1, kTokens);
  for (const BackendOptions& mode : modes()) {
    const auto b = backend(mode);
    const Outcome whole = forced(*b, ids, {kTokens}, Phase::prefill);
    for (const std::vector<int>& split : {std::vector<int>{7}, {64}, {1, 70}, {33, 8, 9}})
      expect_same(whole, forced(*b, ids, split, Phase::prefill), "split " + std::to_string(split[0]));
  }
}

// Passes of one token go through prefill's arithmetic too. Few tokens: a pass is hundreds of barriers, slow where cores
// are shared.
TEST(CpuBits, PromptTokenByToken) {
  const auto ids = some_ids(13, 20);
  const auto b = backend({});
  expect_same(forced(*b, ids, {20}, Phase::prefill), forced(*b, ids, {1}, Phase::prefill), "token by token");
}

TEST(CpuBits, ThreadsAndChunk) {
  const auto ids = some_ids(2, kTokens);
  const auto two = backend({});
  const Outcome prefill = forced(*two, ids, {kTokens}, Phase::prefill), decode = forced(*two, ids, {1}, Phase::decode);
  for (int threads : {1, 3}) {
    const auto b = backend({.chunk = 96}, threads);
    expect_same(prefill, forced(*b, ids, {kTokens}, Phase::prefill), std::to_string(threads) + " threads, prefill");
    expect_same(decode, forced(*b, ids, {1}, Phase::decode), std::to_string(threads) + " threads, decode");
  }
}

TEST(CpuBits, NeighboursInAPrefillPass) {
  const int vocab = model()->shape.vocab;
  const std::vector<std::vector<std::int32_t>> ids = {some_ids(3, 40), some_ids(4, 1), some_ids(5, 67)};
  const auto b = backend({});
  std::vector<SequenceState> states(3, SequenceState(b->state_layout()));
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < 3; ++i) {
    segments.push_back({.state = &states[i], .ids = ids[i], .logits_of = std::vector<std::int32_t>(ids[i].size())});
    std::iota(segments[i].logits_of.begin(), segments[i].logits_of.end(), 0);
  }
  std::vector<float> together(std::size_t(40 + 1 + 67) * std::size_t(vocab));
  b->run(Phase::prefill, segments, together.data());
  const float* at = together.data();
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t n = ids[i].size() * std::size_t(vocab);
    expect_same(forced(*b, ids[i], {1000}, Phase::prefill), outcome({at, at + n}, states[i]),
                "conversation " + std::to_string(i));
    at += n;
  }
}

// n conversations step by step in common passes, and each of them alone.
void expect_same_together(const BackendOptions& mode, std::size_t n) {
  const int vocab = model()->shape.vocab;
  const auto b = backend(mode);
  std::vector<std::vector<std::int32_t>> ids;
  for (std::size_t i = 0; i < n; ++i) ids.push_back(some_ids(unsigned(6 + i), 30));
  std::vector<SequenceState> states(n, SequenceState(b->state_layout()));
  std::vector<std::vector<float>> logits(n);
  for (std::size_t t = 0; t < 30; ++t) {
    std::vector<Segment> segments;
    for (std::size_t i = 0; i < n; ++i)
      segments.push_back({.state = &states[i], .ids = {&ids[i][t], 1}, .logits_of = {0}});
    std::vector<float> row(n * std::size_t(vocab));
    b->run(Phase::decode, segments, row.data());
    for (std::size_t i = 0; i < n; ++i)
      logits[i].insert(logits[i].end(), row.begin() + std::ptrdiff_t(i) * vocab, row.begin() + std::ptrdiff_t(i + 1) * vocab);
  }
  for (std::size_t i = 0; i < n; ++i)
    expect_same(forced(*b, ids[i], {1}, Phase::decode), outcome(logits[i], states[i]),
                "conversation " + std::to_string(i) + " of " + std::to_string(n));
}

TEST(CpuBits, NeighboursInADecodePass) {
  for (const std::size_t n : {2, 5}) {
    expect_same_together({}, n);
    expect_same_together({.decode_activations = plan::Activations::int8}, n);
  }
}

// Decode over several ranges of keys (they are 512 positions), the ranges joined by whichever thread comes last.
TEST(CpuBits, DecodeFarIntoAConversation) {
  const auto ids = some_ids(8, 1100);
  std::vector<Outcome> outcomes;
  for (int threads : {1, 2}) {
    const auto b = backend({}, threads);
    SequenceState state(b->state_layout());
    Segment prompt{.state = &state, .ids = std::span(ids).first(1090), .logits_of = {}};
    for (std::size_t at = 0; at < 1090; at += 545) {
      Segment part{.state = &state, .ids = prompt.ids.subspan(at, 545), .logits_of = {}};
      b->run(Phase::prefill, {&part, 1}, nullptr);
    }
    auto logits =
        test::teacher_forced(*b, state, std::span(ids).subspan(1090), model()->shape.vocab, {1}, Phase::decode);
    outcomes.push_back(outcome(std::move(logits), state));
  }
  expect_same(outcomes[0], outcomes[1], "one thread and two");
}

TEST(CpuBits, ASnapshotContinuesAsIfNothingHadHappened) {
  const auto ids = some_ids(9, 60);
  const auto b = backend({});
  SequenceState state(b->state_layout());
  const int vocab = model()->shape.vocab;
  test::teacher_forced(*b, state, std::span(ids).first(35), vocab, {35}, Phase::prefill);
  SequenceState copy = state;
  const auto rest = std::span<const std::int32_t>(ids).subspan(35);
  auto first = test::teacher_forced(*b, state, rest, vocab, {25}, Phase::prefill);
  auto second = test::teacher_forced(*b, copy, rest, vocab, {3}, Phase::prefill);
  expect_same(outcome(std::move(first), state), outcome(std::move(second), copy), "snapshot");
}

TEST(CpuBits, TheComparisonNoticesOneBit) {
  const auto ids = some_ids(10, 20);
  const auto b = backend({});
  const Outcome a = forced(*b, ids, {20}, Phase::prefill);
  auto other = ids;
  other[0] = (other[0] + 1) % model()->shape.vocab;  // the first token reaches every row
  const Outcome c = forced(*b, other, {20}, Phase::prefill);
  EXPECT_FALSE(same_bits(a.logits, c.logits));
  EXPECT_FALSE(same_bits(a.recurrent.recurrent, c.recurrent.recurrent));
  EXPECT_FALSE(same_bits(a.kv, c.kv));
  Outcome flipped = a;
  reinterpret_cast<std::uint32_t&>(flipped.logits.back()) ^= 1;
  EXPECT_FALSE(same_bits(a.logits, flipped.logits));
}

// Prefill and decode agree in exact mode up to float32 rounding, also after many steps: nothing drifts.
TEST(CpuDrift, ExactDecodeFollowsExactPrefill) {
  const int n = 320, vocab = model()->shape.vocab;
  const auto ids = some_ids(11, n);
  const auto b = backend({.exact = true});
  const Outcome prefill = forced(*b, ids, {n}, Phase::prefill), decode = forced(*b, ids, {1}, Phase::decode);
  // Rounding errors of 2^-24 relative, entering at ~100 places of each layer and growing with the square root of their
  // number (8 layers: sqrt(800) = 28), through a recurrence whose gates forget: 28·6e-8 = 2e-6; 10× for badly
  // conditioned rows.
  const std::size_t last = std::size_t(n - 64) * std::size_t(vocab);
  EXPECT_LE(test::relative_error(std::span(decode.logits).subspan(last), std::span(prefill.logits).subspan(last)),
            2e-5);
  EXPECT_LE(test::relative_error(decode.recurrent.recurrent, prefill.recurrent.recurrent), 2e-5);
}

TEST(CpuDrift, KernelSetsAgree) {
  const auto ids = some_ids(12, 48);
  std::vector<Outcome> outcomes;
  for (const std::string& isa : available_isas())
    outcomes.push_back(forced(*backend({.exact = true, .isa = isa}), ids, {48}, Phase::prefill));
  for (const Outcome& o : outcomes) EXPECT_LE(test::relative_error(o.logits, outcomes[0].logits), 2e-5);
}

}  // namespace
}  // namespace lily
