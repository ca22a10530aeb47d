// Every op of a compiled plan, one at a time: the reference runs up to an op, then the CPU's kernel runs the op on the same
// inputs, then every buffer and every state that the op writes is compared, in each instruction set that this machine has.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "backend/cpu/bound_op.h"
#include "backend/cpu/dispatch.h"
#include "backend/pass_setup.h"
#include "backend/reference/reference_backend.h"
#include "ops/quantize_rows/dequantize.h"
#include "ops/registry.h"
#include "plan/compile.h"
#include "support/golden.h"
#include "support/synthetic_model.h"

namespace lily {
namespace {

using plan::Activations;
using plan::OpKind;
using plan::Phase;

// What an op may write: its buffers and the state of its layer, as bytes.
struct Written {
  std::vector<std::vector<std::byte>> buffers;  // by position in op.writes; state ones are empty
  std::vector<RecurrentState> recurrent;        // by conversation
  std::vector<std::vector<std::byte>> kv;       // by conversation: all blocks one after another
};

class OpByOp {
 public:
  OpByOp(const Weights& weights, plan::Plan plan, std::vector<SequenceState>& states, std::vector<Segment>& segments)
      : plan_(std::move(plan)), states_(states) {
    rows_ = set_up_pass(plan_.phase, segments, weights.shape(), 4096);
    for (const plan::Buffer& b : plan_.buffers) {
      memory_.emplace_back(std::size_t(b.space == plan::Space::state ? 0 : b.bytes(rows(), outputs())), std::byte(0x5a));
      pointers_.push_back(memory_.back().data());
    }
    auto* logits = reinterpret_cast<float*>(pointers_[std::size_t(plan_.logits)]);
    pass_ = make_pass(weights, plan_, rows_, pointers_, logits);
  }

  // Calls check(op, reference result, kernel result, inputs before) for every op.
  template <class Check>
  void run(const ops::CpuKernels& kernels, const Check& check) {
    std::vector<std::byte> scratch_memory(ops::kCpuScratchBytes + 64);
    ops::CpuScratch scratch{reinterpret_cast<std::byte*>((std::uintptr_t(scratch_memory.data()) + 63) / 64 * 64), ops::kCpuScratchBytes};
    for (const plan::Op& op : plan_.ops) {
      const Written before = save(op);
      ops::run_reference(op, pass_);
      const Written expected = save(op);
      restore(op, before);
      std::vector<float> partial(std::size_t(attention_room_floats(*pass_.shape, pass_.segments)) + 16);
      std::vector<std::int32_t> finished(std::size_t(rows() * pass_.shape->kv_heads), 0);
      BoundOp bound;
      bind_op(kernels, op, pass_, {partial.data(), finished.data()}, bound);
      for (std::int64_t u = bound.units; u-- > 0;) bound.run(u, u + 1, scratch);  // backwards: order may not matter
      const Written got = save(op);
      restore(op, expected);
      check(op, before, expected, got);
    }
  }

  const plan::Plan& plan() const { return plan_; }
  const ops::Pass& pass() const { return pass_; }

 private:
  int rows() const { return int(rows_.ids.size()); }
  int outputs() const { return int(rows_.output_row.size()); }
  bool touches_state(const plan::Op& op) const {
    for (plan::BufferId b : op.writes)
      if (plan_.buffers[std::size_t(b)].space == plan::Space::state) return true;
    return false;
  }
  Written save(const plan::Op& op) const {
    Written w;
    for (plan::BufferId b : op.writes) w.buffers.push_back(memory_[std::size_t(b)]);
    if (!touches_state(op)) return w;
    for (const SequenceState& s : states_) {
      w.recurrent.push_back(s.recurrent);
      auto& kv = w.kv.emplace_back();
      for (const std::byte* block : s.block_data) kv.insert(kv.end(), block, block + s.layout.kv_block_bytes);
    }
    return w;
  }
  void restore(const plan::Op& op, const Written& w) {
    for (std::size_t i = 0; i < op.writes.size(); ++i) std::copy(w.buffers[i].begin(), w.buffers[i].end(), memory_[std::size_t(op.writes[i])].begin());
    for (std::size_t i = 0; i < w.recurrent.size(); ++i) {
      states_[i].recurrent = w.recurrent[i];
      for (std::size_t b = 0; b < states_[i].block_data.size(); ++b)
        std::memcpy(states_[i].block_data[b], w.kv[i].data() + b * std::size_t(states_[i].layout.kv_block_bytes), std::size_t(states_[i].layout.kv_block_bytes));
    }
  }

  plan::Plan plan_;
  std::vector<SequenceState>& states_;
  PassRows rows_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> pointers_;
  ops::Pass pass_{};
};

// ‖got − expected‖ / max(‖expected‖, floor).
double row_error(const float* got, const float* expected, std::int64_t n, double floor = 0) {
  double num = 0, den = floor * floor;
  for (std::int64_t i = 0; i < n; ++i) {
    num += (double(got[i]) - expected[i]) * (double(got[i]) - expected[i]);
    den += double(expected[i]) * expected[i];
  }
  return num == 0 ? 0 : std::sqrt(num / (den > 0 ? den : 1e-60));
}

double bytes_error(const void* a, const void* b, std::size_t n) { return std::memcmp(a, b, n) == 0 ? 0 : 1; }

double norm(const float* v, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += double(v[i]) * v[i];
  return std::sqrt(sum);
}

// What a product with one output (the shared expert's gate) is measured against, since its terms may cancel: ‖w‖·‖x‖/√n, the
// usual size of such a sum, with the smallest x of the pass.
double single_output_floor(const OpByOp& run, const plan::Op& op) {
  if (op.kind != OpKind::linear || run.pass().weight(op).rows != 1) return 0;
  const ops::LinearArgs a = ops::bind_linear(op, run.pass());
  std::vector<float> row(std::size_t(a.w.cols));
  dequantize_row(a.w, 0, row.data());
  const double w = norm(row.data(), a.w.cols);
  double x = 1e30;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    if (a.activations == Activations::f32)
      std::copy_n(a.x + r * a.w.cols, a.w.cols, row.begin());
    else
      ops::dequantize_quantized_row(a.q + r * a.layout.row_bytes(), a.layout, a.activations, row.data());
    x = std::min(x, norm(row.data(), a.w.cols));
  }
  return w * x / std::sqrt(double(a.w.cols));
}

// The largest error of any row of any buffer or state that the op writes.
double worst_error(const OpByOp& run, const plan::Op& op, const Written& expected, const Written& got) {
  double worst = 0;
  const double floor = single_output_floor(run, op);
  for (std::size_t i = 0; i < op.writes.size(); ++i) {
    const plan::Buffer& b = run.plan().buffers[std::size_t(op.writes[i])];
    const auto &e = expected.buffers[i], &g = got.buffers[i];
    if (b.space == plan::Space::state || e.empty()) continue;
    if (b.dtype != DType::f32) {
      worst = std::max(worst, bytes_error(e.data(), g.data(), e.size()));
      continue;
    }
    for (std::size_t at = 0; at < e.size(); at += std::size_t(b.width) * 4)
      worst = std::max(worst, row_error(reinterpret_cast<const float*>(g.data() + at), reinterpret_cast<const float*>(e.data() + at), b.width, floor));
  }
  for (std::size_t s = 0; s < expected.recurrent.size(); ++s) {
    const auto &er = expected.recurrent[s].recurrent, &gr = got.recurrent[s].recurrent;
    if (op.kind == OpKind::gdn_scan) worst = std::max(worst, row_error(gr.data(), er.data(), std::int64_t(er.size())));
    const auto &ec = expected.recurrent[s].conv, &gc = got.recurrent[s].conv;
    worst = std::max(worst, bytes_error(ec.data(), gc.data(), ec.size() * 4));
    worst = std::max(worst, bytes_error(expected.kv[s].data(), got.kv[s].data(), expected.kv[s].size()));
  }
  return worst;
}

// Length of the longest sum behind an element of the op's result.
double sum_length(const OpByOp& run, const plan::Op& op) {
  const ModelShape& s = *run.pass().shape;
  switch (op.kind) {
    case OpKind::linear:
    case OpKind::linear_add:
    case OpKind::expert_linear:
    case OpKind::expert_in:
    case OpKind::expert_out: return double(run.pass().weight(op).cols);
    case OpKind::attention: return double(std::max<std::int64_t>(s.head_dim, 512));
    case OpKind::gdn_scan: return double(s.gdn_key_dim) * run.pass().rows;  // errors of the state carry over from token to token
    default: return double(run.plan().buffers[std::size_t(op.reads[0])].width);
  }
}

// As if the op had not computed the last row of what it writes (or the last conversation's state).
Written without_last_row(const OpByOp& run, const plan::Op& op, const Written& before, Written result) {
  for (std::size_t i = 0; i < op.writes.size(); ++i) {
    const plan::Buffer& b = run.plan().buffers[std::size_t(op.writes[i])];
    auto& bytes = result.buffers[i];
    if (b.space == plan::Space::state || bytes.empty()) continue;
    const std::size_t row = std::min(bytes.size(), std::size_t(b.width) * dtype_bytes(b.dtype));
    std::copy(before.buffers[i].end() - std::ptrdiff_t(row), before.buffers[i].end(), bytes.end() - std::ptrdiff_t(row));
  }
  if (!result.recurrent.empty()) {
    result.recurrent.back() = before.recurrent.back();
    result.kv.back() = before.kv.back();
  }
  return result;
}

struct Setting {
  Phase phase;
  Activations activations;
  std::vector<int> rows;  // of each conversation
};

class OpDiff : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = new test::SyntheticModel(test::golden_path("t1/config.json")); }
  static void TearDownTestSuite() {
    delete model_;
    model_ = nullptr;
  }
  // Conversations that have read 70, 71, … tokens.
  static std::vector<SequenceState> conversations(std::size_t n, DType kv_type) {
    ReferenceBackend reference((*model_)->weights, kv_type);
    std::vector<SequenceState> states;
    for (std::size_t i = 0; i < n; ++i) {
      states.emplace_back(reference.state_layout());
      const auto ids = synthetic_token_ids("conversation " + std::to_string(i), 70 + int(i), (*model_)->shape.vocab);
      Segment s{.state = &states.back(), .ids = ids, .logits_of = {}};
      reference.run(Phase::prefill, {&s, 1}, nullptr);
    }
    return states;
  }
  void run(const ops::CpuKernels& kernels, const Setting& setting, const char* backend);

  static test::SyntheticModel* model_;
  std::map<OpKind, double> worst_;  // error over tolerance
  std::set<OpKind> noticed_;        // kinds whose comparison saw a missing row
};
test::SyntheticModel* OpDiff::model_ = nullptr;

void OpDiff::run(const ops::CpuKernels& kernels, const Setting& setting, const char* backend) {
  const Weights& weights = (*model_)->weights;
  const DType kv_type = setting.activations == Activations::f32 ? DType::f32 : DType::bf16;
  std::vector<SequenceState> states = conversations(setting.rows.size(), kv_type);
  std::vector<std::vector<std::int32_t>> ids;
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < setting.rows.size(); ++i) {
    ids.push_back(synthetic_token_ids("pass " + std::to_string(i), setting.rows[i], weights.shape().vocab));
    segments.push_back({.state = &states[i], .ids = {}, .logits_of = {setting.rows[i] - 1}});
  }
  for (std::size_t i = 0; i < ids.size(); ++i) segments[i].ids = ids[i];
  OpByOp by_op(weights, plan::compile(weights, setting.phase, {.backend = backend, .activations = setting.activations}), states, segments);
  by_op.run(kernels, [&](const plan::Op& op, const Written& before, const Written& expected, const Written& got) {
    const ops::OpRow& row = ops::op_row(op.kind);
    const bool int16 = row.int16 > 0 && setting.phase == Phase::prefill && kv_type == DType::bf16;
    const double tolerance = (int16 ? row.int16 : row.roundings + row.per_sqrt_n * std::sqrt(sum_length(by_op, op))) * 0x1p-24;
    const double error = worst_error(by_op, op, expected, got);
    EXPECT_LE(error, tolerance) << op.name << " on " << kernels.isa;
    double& w = worst_[op.kind];
    if (tolerance > 0) w = std::max(w, error / tolerance);
    if (worst_error(by_op, op, expected, without_last_row(by_op, op, before, got)) > tolerance) noticed_.insert(op.kind);
  });
}

TEST_F(OpDiff, EveryKernelAgreesWithItsReference) {
  const std::vector<Setting> settings = {
      {Phase::prefill, Activations::f32, {33, 5}}, {Phase::prefill, Activations::int8, {40}},
      {Phase::prefill, Activations::int16, {1, 66}}, {Phase::decode, Activations::f32, {1}},
      {Phase::decode, Activations::int16, {1, 1, 1}},
  };
  std::set<OpKind> seen;
  for (const std::string& isa : available_isas())
    for (const Setting& s : settings)
      for (const char* backend : {"cpu", "reference"}) run(cpu_kernels(isa), s, backend);  // fused, and every part alone
  for (const auto& [kind, share] : worst_) {
    std::cout << "  " << plan::op_name(kind) << ": at most " << share << " of its tolerance\n";
    seen.insert(kind);
  }
  // No op of the registry lacks a case, and every comparison notices one row that was not computed.
  for (int k = 0; k < int(OpKind::count_); ++k) {
    const OpKind kind = OpKind(k);
    EXPECT_TRUE(seen.count(kind)) << plan::op_name(kind) << " occurs in no case";
    EXPECT_TRUE(noticed_.count(kind)) << plan::op_name(kind) << ": its comparison does not notice a missing row";
  }
}

}  // namespace
}  // namespace lily
