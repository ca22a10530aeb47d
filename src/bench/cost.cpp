#include "bench/cost.h"

#include <algorithm>

#include "plan/cost.h"

namespace lily::bench {

Work prefill_work(const Backend& backend, const Weights& weights, int n) {
  plan::Cost sum;
  for (int at = 0, rows = 0; at < n; at += rows) {
    rows = int(next_pass(n - at, backend.max_rows()));
    sum += plan::cost(backend.plan(plan::Phase::prefill), weights,
                      {.rows = rows,
                       .position = at,
                       .output_rows = at + rows == n ? 1 : 0,
                       .kv_type = backend.state_layout().kv_type});
  }
  return {.bytes = sum.bytes() / n, .int8_ops = sum.int8_ops / n, .float_ops = sum.float_ops / n};
}

Work decode_work(const Backend& backend, const Weights& weights, int context, int steps) {
  // Bytes and operations of a step grow linearly with the context: the mean of all is that of the first and the last.
  const auto at = [&](std::int64_t position) {
    return plan::cost(backend.plan(plan::Phase::decode), weights,
                      {.rows = 1, .position = position, .kv_type = backend.state_layout().kv_type});
  };
  plan::Cost sum = at(context);
  sum += at(context + steps - 1);
  return {.bytes = sum.bytes() / 2, .int8_ops = sum.int8_ops / 2, .float_ops = sum.float_ops / 2};
}

std::int64_t state_bytes(const StateLayout& layout, std::int64_t tokens) {
  return kv_blocks(tokens) * layout.kv_block_bytes + layout.recurrent_bytes();
}

double limit_seconds(const Work& work, const MachineLimits& limits) {
  const double read = limits.read_bytes_per_s > 0 ? work.bytes / limits.read_bytes_per_s : 0;
  const double compute = limits.int8_ops_per_s > 0 ? work.int8_ops / limits.int8_ops_per_s : 0;
  return std::max(read, compute);
}

}  // namespace lily::bench
