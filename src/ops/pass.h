// What an op sees of one pass through the model: rows, conversations, memory, weights.
#pragma once

#include <cstdint>
#include <span>

#include "model/state.h"
#include "model/weights.h"
#include "ops/techniques.h"
#include "plan/op.h"
#include "plan/quant_layout.h"

namespace lily::ops {

/// Rows [row, row + rows) of the pass are tokens position, position+1, … of one conversation.
struct SegmentRows {
  SequenceState* state;
  std::int64_t position;  // of the first row: tokens the conversation had absorbed before
  int row;
  int rows;
};

/// Valid during one pass. Buffers are bound by id; state buffers are reached through the segments.
struct Pass {
  const ModelShape* shape;
  const Weights* weights;
  const plan::Plan* plan;
  std::span<const SegmentRows> segments;
  int rows = 0;         // tokens of the pass
  int output_rows = 0;  // of them, rows whose logits are wanted
  const std::int32_t* output_row = nullptr;  // [output_rows] which rows those are
  std::byte* const* buffers = nullptr;       // by BufferId; null for state
  Techniques techniques = {};                // what the kernels may do

  template <class T>
  T* at(plan::BufferId id) const { return reinterpret_cast<T*>(buffers[id]); }
  int rows_of(plan::BufferId id) const {
    const plan::Buffer& b = plan->buffers[id];
    return (b.rows == plan::RowSet::token ? rows : output_rows) * b.rows_per_token;
  }
  /// Layout of a quantised buffer whose rows hold `width` values.
  QuantLayout quant_layout(plan::BufferId id, int width) const {
    const QuantLayout two{width, 2};
    return plan->buffers[id].width == two.row_bytes() ? two : QuantLayout{width, 1};
  }
  const Matrix& weight(const plan::Op& op, int i = 0) const { return weights->get(op.weights[i]); }
};

}  // namespace lily::ops
