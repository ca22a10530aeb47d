#include "ops/expert_linear/expert_linear.h"

#include "ops/linear/dot_ref.h"

namespace lily::ops {
namespace {

// The common part: where the input rows lie and in which form.
template <class Args>
void bind_input(Args& a, const plan::Op& op, const Pass& pass, const float*& x, const Matrix& w) {
  a.activations = op.activations;
  if (op.activations == plan::Activations::f32) {
    x = pass.at<const float>(op.reads[0]);
  } else {
    a.q = pass.at<const std::byte>(op.reads[0]);
    a.layout = pass.quant_layout(op.reads[0], int(w.cols));
  }
  a.groups = pass.at<const std::int32_t>(op.reads[1]);
  a.rows = pass.rows;
  a.k = pass.shape->experts_per_token;
  a.decode = pass.plan->phase == plan::Phase::decode;
  a.techniques = pass.techniques;
}

}  // namespace

ExpertLinearArgs bind_expert_linear(const plan::Op& op, const Pass& pass) {
  ExpertLinearArgs a{};
  a.w = pass.weight(op);
  bind_input(a, op, pass, a.x, a.w);
  a.x_per_pair = pass.plan->buffers[op.reads[0]].rows_per_token != 1;
  a.y = pass.at<float>(op.writes[0]);
  return a;
}

ExpertInArgs bind_expert_in(const plan::Op& op, const Pass& pass) {
  ExpertInArgs a{};
  a.gate = pass.weight(op, 0);
  a.up = pass.weight(op, 1);
  bind_input(a, op, pass, a.x, a.gate);
  a.h = pass.at<float>(op.writes[0]);
  return a;
}

ExpertOutArgs bind_expert_out(const plan::Op& op, const Pass& pass) {
  ExpertOutArgs a{};
  a.down = pass.weight(op);
  bind_input(a, op, pass, a.h, a.down);
  a.weight = pass.at<const float>(op.reads[2]);
  a.shared = pass.at<const float>(op.reads[3]);
  a.shared_gate = pass.at<const float>(op.reads[4]);
  a.residual = pass.at<float>(op.reads[5]);
  return a;
}

void expert_linear_ref(const ExpertLinearArgs& a) {
  const std::int64_t in_rows = std::int64_t(a.rows) * (a.x_per_pair ? a.k : 1);
  const std::vector<float> x = rows_ref(a.activations, a.x, a.q, a.layout, in_rows, a.w.cols);
  const std::int32_t* pairs = a.groups + a.w.count + 1;
  std::vector<float> w(std::size_t(a.w.cols));
  for (std::int64_t e = 0; e < a.w.count; ++e) {
    if (a.groups[e] == a.groups[e + 1]) continue;
    const Matrix m = a.w.at(e);
    const std::span<const std::int32_t> group(pairs + a.groups[e], pairs + a.groups[e + 1]);
    std::vector<const float*> row;
    for (std::int32_t pair : group) row.push_back(x.data() + std::int64_t(a.x_per_pair ? pair : pair / a.k) * m.cols);
    std::vector<float> dots(group.size());
    for (std::int64_t o = 0; o < m.rows; ++o) {
      dequantize_row(m, o, w.data());
      dots_ref(w.data(), row, m.cols, dots.data());
      for (std::size_t i = 0; i < group.size(); ++i) a.y[std::int64_t(group[i]) * m.rows + o] = dots[i];
    }
  }
}

}  // namespace lily::ops
