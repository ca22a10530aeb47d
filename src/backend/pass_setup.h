// What every back end does before a pass: check the request, lay the segments out as rows, make room for KV.
#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"
#include "ops/pass.h"

namespace lily {

/// The rows of a pass. Valid until the next pass.
struct PassRows {
  std::vector<std::int32_t> ids;               // [rows]
  std::vector<std::int32_t> output_row;        // rows whose logits are wanted, in segment order
  std::vector<ops::SegmentRows> segments;
};

/// Checks ids, lengths and `logits_of` (Error(invalid_argument), before anything changes), then reserves KV blocks.
PassRows set_up_pass(plan::Phase phase, std::span<Segment> segments, const ModelShape& shape, int max_rows);

/// The pass over `rows` (which it points into): binds ids and logits in `buffers` (by BufferId, the rest bound by the back end).
ops::Pass make_pass(const Weights& weights, const plan::Plan& plan, PassRows& rows, std::vector<std::byte*>& buffers, float* logits);

/// Advances the conversations by the tokens of the pass: called after it succeeded.
void finish_pass(std::span<Segment> segments);

}  // namespace lily
