// The CPU: a compiled plan becomes a list of phases for the thread pool; a pass binds rows and state to it and runs it.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "backend/backend.h"
#include "backend/cpu/aligned_memory.h"
#include "backend/cpu/bound_op.h"
#include "backend/cpu/populate.h"
#include "base/thread_pool.h"
#include "plan/liveness.h"

namespace lily {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Weights& weights, const BackendOptions& options);
  std::string name() const override;
  std::string arithmetic() const override;
  const StateLayout& state_layout() const override { return layout_; }
  int max_rows() const override { return max_rows_; }
  const plan::Plan& plan(plan::Phase phase) const override { return phase == plan::Phase::prefill ? prefill_ : decode_; }
  std::int64_t scratch_bytes() const override;
  void run(plan::Phase phase, std::span<Segment> segments, float* logits, const LayerHook& hook = {}) override;

  std::vector<ops::Technique> techniques() const override { return ops::techniques("cpu"); }
  void switch_off(const std::vector<std::string>& names) override;
  void time_stages(StageTimes* times) override { stage_times_ = times; }
  void load_weights() override;
  MachineLimits measure_limits() override;  // limits.cpp

  const ops::CpuKernels& kernels() const { return *kernels_; }
  ThreadPool& pool() { return pool_; }

 private:
  const plan::MemoryPlan& memory(plan::Phase phase, int rows, int output_rows);
  AttentionRoom attention_room(const ops::Pass& pass);
  void bind_pass(const ops::Pass& pass);
  void run_stages(const ops::Pass& pass, const LayerHook& hook);

  const Weights& weights_;
  const ops::CpuKernels* kernels_ = nullptr;  // set by switch_off
  StateLayout layout_;
  int max_rows_;
  BackendOptions options_;
  ops::Techniques techniques_;
  plan::Plan prefill_, decode_;
  std::unique_ptr<Populate> populate_;
  ThreadPool pool_;
  AlignedMemory scratch_memory_, arena_, partial_;  // grown to the largest pass
  std::vector<std::int32_t> finished_;               // zero between passes
  std::vector<ops::CpuScratch> scratch_;  // by worker
  std::map<std::tuple<plan::Phase, int, int>, plan::MemoryPlan> memory_plans_;
  // Of the pass that is running.
  struct Work {
    const CpuBackend* backend;
    BoundOp op;
  };
  std::vector<Work> work_;                  // by op
  std::vector<ThreadPool::Task> tasks_;     // by op
  std::vector<ThreadPool::Phase> phases_;   // by stage
  std::vector<std::byte*> pointers_;        // by buffer
  StageTimes* stage_times_ = nullptr;
};

}  // namespace lily
