// The oracle: runs any plan op by op in plain scalar float32, every buffer in memory of its own.
#pragma once

#include "backend/backend.h"
#include "ops/pass.h"

namespace lily {

class ReferenceBackend final : public Backend {
 public:
  /// `plans`: what to run; by default the model unfused and in float32. A test hands in another back end's compiled plan to get
  /// that plan's meaning.
  ReferenceBackend(const Weights& weights, DType kv_type, int max_rows = 512);
  ReferenceBackend(const Weights& weights, DType kv_type, int max_rows, plan::Plan prefill, plan::Plan decode);

  std::string name() const override { return "reference"; }
  std::string arithmetic() const override { return name(); }
  const StateLayout& state_layout() const override { return layout_; }
  int max_rows() const override { return max_rows_; }
  const plan::Plan& plan(plan::Phase phase) const override { return phase == plan::Phase::prefill ? prefill_ : decode_; }
  std::int64_t scratch_bytes() const override;
  void run(plan::Phase phase, std::span<Segment> segments, float* logits, const LayerHook& hook = {}) override;

  /// As run, and hands every op to `after` when it is done, with the pass whose buffers hold what was computed so far.
  using OpHook = std::function<void(const plan::Op&, const ops::Pass&)>;
  void run_with(plan::Phase phase, std::span<Segment> segments, float* logits, const LayerHook& hook, const OpHook& after);

 private:
  const Weights& weights_;
  StateLayout layout_;
  int max_rows_;
  plan::Plan prefill_, decode_;
};

}  // namespace lily
