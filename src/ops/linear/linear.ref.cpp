#include "ops/linear/linear.h"

#include "ops/linear/dot_ref.h"

namespace lily::ops {

LinearArgs bind_linear(const plan::Op& op, const Pass& pass) {
  LinearArgs a{.activations = op.activations, .w = pass.weight(op), .y = pass.at<float>(op.writes[0])};
  a.rows = pass.rows_of(op.reads[0]);
  a.decode = pass.plan->phase == plan::Phase::decode;
  a.techniques = pass.techniques;
  a.residual = op.kind == plan::OpKind::linear_add ? pass.at<const float>(op.reads[1]) : nullptr;
  if (op.activations == plan::Activations::f32) {
    a.x = pass.at<const float>(op.reads[0]);
  } else {
    a.q = pass.at<const std::byte>(op.reads[0]);
    a.layout = pass.quant_layout(op.reads[0], int(a.w.cols));
  }
  return a;
}

void linear_ref(const LinearArgs& a) {
  const std::vector<float> x = rows_ref(a.activations, a.x, a.q, a.layout, a.rows, a.w.cols);
  std::vector<float> w(std::size_t(a.w.cols)), dots(std::size_t(a.rows));
  std::vector<const float*> row(std::size_t(a.rows));
  for (std::int64_t r = 0; r < a.rows; ++r) row[std::size_t(r)] = x.data() + r * a.w.cols;
  for (std::int64_t o = 0; o < a.w.rows; ++o) {
    dequantize_row(a.w, o, w.data());
    dots_ref(w.data(), row, a.w.cols, dots.data());
    for (std::int64_t r = 0; r < a.rows; ++r) {
      const float dot = dots[std::size_t(r)];
      a.y[r * a.w.rows + o] = a.residual ? a.residual[r * a.w.rows + o] + dot : dot;
    }
  }
}

}  // namespace lily::ops
