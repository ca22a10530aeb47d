#include "plan/cost.h"

#include <cmath>

namespace lily::plan {
namespace {

// Matrix products: bytes of the weights that are touched, rows × weights multiply-adds.
void add_weights(Cost& c, const Op& op, const Weights& weights, const CostInput& in, int rows) {
  const ModelShape& s = weights.shape();
  if (rows == 0) return;
  for (TensorId id : op.weights) {
    const Matrix& m = weights.get(id);
    if (op.kind == OpKind::embed) {
      c.weight_bytes += double(rows) * double(m.bytes_one()) / double(m.rows);
    } else if (m.count > 1) {
      const double share = 1 - std::pow(1 - double(s.experts_per_token) / s.experts, in.rows);
      c.weight_bytes += share * double(m.bytes());
      c.multiply_adds += double(rows) * s.experts_per_token * double(m.rows) * double(m.cols);
    } else {
      c.weight_bytes += double(m.bytes());
      if (m.rows > 1 || m.quantized()) c.multiply_adds += double(rows) * double(m.rows) * double(m.cols);
    }
  }
}

void add_state(Cost& c, OpKind kind, const ModelShape& s, const CostInput& in) {
  const double n = in.rows, kv_row = 2.0 * s.kv_width() * double(dtype_bytes(in.kv_type));
  const double recurrent = double(s.value_width()) * s.gdn_key_dim;
  switch (kind) {
    case OpKind::conv1d_silu: c.state_bytes += 2.0 * s.conv_channels() * (s.conv_kernel - 1) * 4; break;
    case OpKind::gdn_scan:
      c.state_bytes += 2 * recurrent * 4;
      c.multiply_adds += n * 3 * recurrent;
      break;
    case OpKind::kv_append: c.state_bytes += n * kv_row; break;
    case OpKind::attention:
      c.state_bytes += (double(in.position) + n) * kv_row;
      c.multiply_adds += 2.0 * s.attn_width() * (n * double(in.position) + n * (n + 1) / 2);
      break;
    default: break;
  }
}

}  // namespace

Cost cost(const Plan& plan, const Op& op, const Weights& weights, const CostInput& in) {
  Cost c;
  const bool output = !op.writes.empty() && plan.buffers[op.writes[0]].rows == RowSet::output;
  add_weights(c, op, weights, in, output ? in.output_rows : in.rows);
  const double products = c.multiply_adds;
  add_state(c, op.kind, weights.shape(), in);
  for (const Op& part : op.parts) add_state(c, part.kind, weights.shape(), in);
  c.float_ops = 2 * (c.multiply_adds - products);
  switch (op.activations) {
    case Activations::f32: c.float_ops += 2 * products; break;
    case Activations::int8: c.int8_ops = 2 * products; break;
    case Activations::int16: c.int8_ops = 2 * 2 * products; break;
  }
  return c;
}

Cost cost(const Plan& plan, const Weights& weights, const CostInput& in) {
  Cost total;
  for (const Op& op : plan.ops) total += cost(plan, op, weights, in);
  return total;
}

}  // namespace lily::plan
