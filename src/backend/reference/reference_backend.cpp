#include "backend/reference/reference_backend.h"

#include <cstring>

#include "backend/pass_setup.h"
#include "ops/registry.h"
#include "plan/compile.h"

namespace lily {

ReferenceBackend::ReferenceBackend(const Weights& weights, DType kv_type, int max_rows)
    : ReferenceBackend(weights, kv_type, max_rows, plan::compile(weights, plan::Phase::prefill, {}),
                       plan::compile(weights, plan::Phase::decode, {})) {}

ReferenceBackend::ReferenceBackend(const Weights& weights, DType kv_type, int max_rows, plan::Plan prefill, plan::Plan decode)
    : weights_(weights),
      layout_(weights.shape(), kv_type),
      max_rows_(max_rows),
      prefill_(std::move(prefill)),
      decode_(std::move(decode)) {}

std::int64_t ReferenceBackend::scratch_bytes() const {
  std::int64_t bytes = 0;
  for (const plan::Buffer& b : prefill_.buffers)
    if (b.space == plan::Space::activation) bytes += b.bytes(max_rows_, max_rows_);
  return bytes;
}

void ReferenceBackend::run(plan::Phase phase, std::span<Segment> segments, float* logits, const LayerHook& hook) {
  run_with(phase, segments, logits, hook, {});
}

void ReferenceBackend::run_with(plan::Phase phase, std::span<Segment> segments, float* logits, const LayerHook& hook,
                                const OpHook& after) {
  const plan::Plan& plan = this->plan(phase);
  PassRows rows = set_up_pass(phase, segments, weights_.shape(), max_rows_);

  std::vector<std::vector<std::byte>> memory(plan.buffers.size());
  std::vector<std::byte*> pointers(plan.buffers.size(), nullptr);
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    if (plan.buffers[b].space != plan::Space::activation) continue;
    memory[b].resize(std::size_t(plan.buffers[b].bytes(int(rows.ids.size()), int(rows.output_row.size()))));
    pointers[b] = memory[b].data();
  }
  const ops::Pass pass = make_pass(weights_, plan, rows, pointers, logits);
  for (const plan::Op& op : plan.ops) {
    ops::run_reference(op, pass);
    if (after) after(op, pass);
    if (hook && op.ends_layer) hook(op.layer, pass.at<const float>(plan.residual), pass.rows);
  }
  finish_pass(segments);
}

}  // namespace lily
