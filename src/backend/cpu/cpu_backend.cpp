#include "backend/cpu/cpu_backend.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "backend/cpu/dispatch.h"
#include "backend/cpu/shape_limits.h"
#include "backend/pass_setup.h"
#include "base/clock.h"
#include "base/error.h"
#include "plan/compile.h"

namespace lily {
namespace {

constexpr int kDefaultChunk = 2048;  // rows of a prefill pass: 64 an expert on average

plan::Plan compile(const Weights& weights, plan::Phase phase, const BackendOptions& options,
                   const std::vector<std::string>& fusions_off) {
  plan::Activations activations = plan::Activations::f32;
  if (!options.exact) activations = phase == plan::Phase::decode ? options.decode_activations : options.prefill_activations;
  return plan::compile(weights, phase, {.backend = "cpu", .activations = activations, .fusions_off = fusions_off});
}

/// Its kinds of ops, each once.
std::string stage_name(std::span<const plan::Op> ops) {
  std::set<std::string> kinds;
  for (const plan::Op& op : ops) kinds.insert(plan::op_name(op.kind));
  return fmt::format("{}", fmt::join(kinds, "+"));
}

}  // namespace

CpuBackend::CpuBackend(const Weights& weights, const BackendOptions& options)
    : weights_(weights),
      layout_(weights.shape(), options.exact ? DType::f32 : DType::bf16),
      max_rows_(options.chunk > 0 ? options.chunk : kDefaultChunk),
      options_(options),
      populate_(std::make_unique<Populate>(weights)),
      pool_(options.threads > 0 ? options.threads : default_thread_count()),
      scratch_memory_(std::size_t(pool_.threads()) * ops::kCpuScratchBytes) {
  require_cpu_fit(weights.shape());
  switch_off(options.off);
  for (int t = 0; t < pool_.threads(); ++t)
    scratch_.push_back({scratch_memory_.data() + std::size_t(t) * ops::kCpuScratchBytes, ops::kCpuScratchBytes});
}

void CpuBackend::switch_off(const std::vector<std::string>& names) {
  const ops::TechniqueChoice choice = ops::without("cpu", names);
  const ops::CpuKernels* kernels = &cpu_kernels(options_.isa);
  if (!choice.kernels.amx_tiles && kernels->isa == std::string_view("avx512amx")) kernels = &cpu_kernels("avx512vnni");
  plan::Plan prefill = compile(weights_, plan::Phase::prefill, options_, choice.fusions_off);
  decode_ = compile(weights_, plan::Phase::decode, options_, choice.fusions_off);
  prefill_ = std::move(prefill);
  kernels_ = kernels;
  techniques_ = choice.kernels;
  memory_plans_.clear();
}

void CpuBackend::load_weights() {
  populate_->wait();
  // Again: while nothing ran, another program may have pushed out what had been mapped.
  populate_ = std::make_unique<Populate>(weights_);
  populate_->wait();
}

std::string CpuBackend::name() const {
  return "cpu (" + std::string(kernels_->isa) + ", " + std::to_string(pool_.threads()) +
         (pool_.threads() == 1 ? " thread)" : " threads)");
}

std::string CpuBackend::arithmetic() const {
  const auto activations = [&](plan::Activations a) { return options_.exact ? int(plan::Activations::f32) : int(a); };
  return fmt::format("cpu {} {} {}", kernels_->isa, activations(options_.prefill_activations), activations(options_.decode_activations));
}

std::int64_t CpuBackend::scratch_bytes() const {
  const ops::SegmentRows full_window{nullptr, weights_.shape().max_context - 1, 0, 1};
  return std::int64_t(scratch_memory_.size()) +
         attention_room_floats(weights_.shape(), {&full_window, 1}) * std::int64_t(sizeof(float)) +
         std::max(plan::assign_memory(prefill_, max_rows_, 1).bytes, plan::assign_memory(decode_, 1, 1).bytes);
}

// Passes of a few sizes alternate (full chunks, one tail, decode), so their arrangements are kept.
const plan::MemoryPlan& CpuBackend::memory(plan::Phase phase, int rows, int output_rows) {
  const auto key = std::make_tuple(phase, rows, output_rows);
  const auto found = memory_plans_.find(key);
  if (found != memory_plans_.end()) return found->second;
  if (memory_plans_.size() > 64) memory_plans_.clear();
  return memory_plans_[key] = plan::assign_memory(plan(phase), rows, output_rows);
}

AttentionRoom CpuBackend::attention_room(const ops::Pass& pass) {
  if (pass.plan->phase != plan::Phase::decode) return {};
  const std::size_t bytes = std::size_t(attention_room_floats(*pass.shape, pass.segments)) * sizeof(float);
  const std::size_t pairs = std::size_t(pass.rows) * std::size_t(pass.shape->kv_heads);
  // Without the technique the ranges of one pair lie in a worker's scratch, beside less than 256 KB.
  if (!techniques_.fixed_block_attention && bytes / pairs > ops::kCpuScratchBytes - (std::size_t(256) << 10))
    throw Error(ErrorCode::unsupported, "without fixed-block-attention the CPU back end has no room for so long a context");
  if (partial_.size() < bytes) partial_ = AlignedMemory(bytes + bytes / 2);  // contexts grow: not anew for every range
  if (finished_.size() < pairs) finished_.resize(pairs, 0);
  return {reinterpret_cast<float*>(partial_.data()), finished_.data()};
}

void CpuBackend::bind_pass(const ops::Pass& pass) {
  const plan::Plan& plan = *pass.plan;
  const AttentionRoom room = attention_room(pass);
  work_.resize(plan.ops.size());
  tasks_.resize(plan.ops.size());
  phases_.clear();
  std::size_t first = 0;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    bind_op(*kernels_, plan.ops[i], pass, room, work_[i].op);
    work_[i].backend = this;
    const std::int64_t units = work_[i].op.units;
    tasks_[i] = {.units = units,
                 .grain = batch_grain(units, pool_.threads()),
                 .run = [](const void* context, std::int64_t begin, std::int64_t end, int thread) {
                   const Work& work = *static_cast<const Work*>(context);
                   ops::CpuScratch scratch = work.backend->scratch_[std::size_t(thread)];
                   work.op.run(begin, end, scratch);
                 },
                 .context = &work_[i]};
    if (i + 1 == plan.ops.size() || plan.ops[i + 1].stage != plan.ops[i].stage) {
      phases_.emplace_back(tasks_.data() + first, i + 1 - first);
      first = i + 1;
    }
  }
}

void CpuBackend::run_stages(const ops::Pass& pass, const LayerHook& hook) {
  if (!hook && !stage_times_) return pool_.run(phases_);
  for (const ThreadPool::Phase& phase : phases_) {
    const auto begin = Clock::now();
    pool_.run({&phase, 1});
    const std::size_t first = std::size_t(phase.data() - tasks_.data());
    const std::span ops = std::span(pass.plan->ops).subspan(first, phase.size());
    if (stage_times_) (*stage_times_)[stage_name(ops)] += seconds_since(begin);
    for (const plan::Op& op : ops)
      if (hook && op.ends_layer) hook(op.layer, pass.at<const float>(pass.plan->residual), pass.rows);
  }
}

void CpuBackend::run(plan::Phase phase, std::span<Segment> segments, float* logits, const LayerHook& hook) {
  const plan::Plan& plan = this->plan(phase);
  PassRows rows = set_up_pass(phase, segments, weights_.shape(), max_rows_);
  const plan::MemoryPlan& memory = this->memory(phase, int(rows.ids.size()), int(rows.output_row.size()));
  if (std::int64_t(arena_.size()) < memory.bytes) arena_ = AlignedMemory(std::size_t(memory.bytes));

  pointers_.assign(plan.buffers.size(), nullptr);
  for (std::size_t b = 0; b < plan.buffers.size(); ++b)
    if (memory.offset[b] >= 0) pointers_[b] = arena_.data() + memory.offset[b];
  ops::Pass pass = make_pass(weights_, plan, rows, pointers_, logits);
  pass.techniques = techniques_;
  bind_pass(pass);
  run_stages(pass, hook);
  finish_pass(segments);
}

}  // namespace lily
