// A model small enough to be checked by hand: its logits are a hash of every token it has absorbed, taken half from the
// recurrent state and half from the KV blocks. Any slip in keeping, sharing or going back to state changes the logits.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "base/error.h"
#include "engine/engine.h"

namespace lily::fake {

inline constexpr int kVocab = 101;

inline ModelShape shape(int window = 4096) {
  ModelShape s;
  s.hidden = 4;
  s.layers = 2;
  s.vocab = kVocab;
  s.max_context = window;
  s.layer_kinds = {LayerKind::gated_deltanet, LayerKind::full_attention};
  s.attn_heads = s.kv_heads = 1;
  s.head_dim = 2;
  s.gdn_key_heads = s.gdn_value_heads = 1;
  s.gdn_key_dim = s.gdn_value_dim = 2;
  s.conv_kernel = 4;
  return s;
}

/// What a backend was asked to do.
struct Pass {
  plan::Phase phase;
  int rows;
  int wanted;  // rows of logits
};

class Backend : public lily::Backend {
 public:
  explicit Backend(int longest = 64) : layout_(shape(), DType::f32), longest_(longest) {}
  std::string name() const override { return "fake"; }
  std::string arithmetic() const override { return name(); }
  const StateLayout& state_layout() const override { return layout_; }
  int max_rows() const override { return longest_; }
  const plan::Plan& plan(plan::Phase) const override { return plan_; }
  std::int64_t scratch_bytes() const override { return 0; }

  void run(plan::Phase phase, std::span<Segment> segments, float* logits, const LayerHook& hook) override {
    int rows = 0, wanted_rows = 0;
    for (const Segment& s : segments) rows += int(s.ids.size()), wanted_rows += int(s.logits_of.size());
    passes.push_back({phase, rows, wanted_rows});
    if (fail_at && passes.size() == fail_at) throw Error(ErrorCode::internal, "the device is gone");
    for (Segment& s : segments) {
      s.state->reserve(s.state->length + std::int64_t(s.ids.size()));
      std::size_t wanted = 0;
      for (std::size_t i = 0; i < s.ids.size(); ++i) {
        absorb(*s.state, s.ids[i]);
        if (wanted == s.logits_of.size() || s.logits_of[wanted] != int(i)) continue;
        write_logits(*s.state, logits);
        if (poison_length && s.state->length >= poison_length) {
          s.state->recurrent.recurrent[0] = NAN;
          logits[17] = NAN;
        }
        logits += kVocab;
        ++wanted;
      }
    }
    const std::vector<float> x(std::size_t(rows) * 4, float(passes.size()));
    if (hook) {
      for (int layer = 0; layer < 2; ++layer) hook(layer, x.data(), rows);
    }
  }

  std::vector<Pass> passes;
  std::int64_t poison_length = 0;  // 0: never
  std::size_t fail_at = 0;         // number of the pass that throws, from 1; 0: none

  int rows_run() const {
    return std::accumulate(passes.begin(), passes.end(), 0, [](int sum, const Pass& p) { return sum + p.rows; });
  }

 private:
  static void absorb(SequenceState& s, std::int32_t id) {
    float& h = s.recurrent.recurrent[0];  // integers below 2^20: exact in float
    h = float((std::int64_t(h) * 31 + id + 7) % 1000003);
    s.recurrent.conv[0] = float(id);
    auto* block = reinterpret_cast<float*>(s.block_data[s.length / kKvBlockTokens]);
    block[s.length % kKvBlockTokens] = float(id);
    ++s.length;
  }
  static void write_logits(const SequenceState& s, float* logits) {
    std::int64_t kv = 0;
    for (std::int64_t i = 0; i < s.length; ++i) {
      const auto* block = reinterpret_cast<const float*>(s.block_data[i / kKvBlockTokens]);
      kv = (kv * 37 + std::int64_t(block[i % kKvBlockTokens])) % 1000003;
    }
    const auto h = std::int64_t(s.recurrent.recurrent[0]);
    for (int t = 0; t < kVocab; ++t) {
      logits[t] = float((h * (t + 3) + kv * (t * t + 5) + std::int64_t(s.recurrent.conv[0]) * t) % 9973) / 997.0f;
    }
  }

  StateLayout layout_;
  plan::Plan plan_;
  int longest_;
};

/// An engine over a fake back end that the test keeps an eye on.
struct Rig {
  explicit Rig(int longest = 64, EngineOptions options = {}, int window = 4096)
      : backend(new Backend(longest)), engine(std::unique_ptr<lily::Backend>(backend), shape(window), options) {}
  Backend* backend;
  Engine engine;

  std::vector<float> cold_logits(std::span<const std::int32_t> ids) {
    Session fresh(engine);
    fresh.sync(ids);
    const auto l = fresh.logits();
    return {l.begin(), l.end()};
  }
};

inline std::vector<std::int32_t> some_ids(int n, int salt = 0) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back((i * 7 + salt * 13 + i * i % 11) % kVocab);
  return ids;
}

}  // namespace lily::fake
