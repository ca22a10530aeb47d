#include "backend/pass_setup.h"

#include "base/error.h"

namespace lily {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::invalid_argument, what); }

void check(plan::Phase phase, std::span<Segment> segments, const ModelShape& shape, int max_rows) {
  std::int64_t rows = 0;
  for (const Segment& s : segments) {
    if (s.ids.empty()) refuse("a segment of a pass has no tokens");
    if (phase == plan::Phase::decode && s.ids.size() != 1)
      refuse("a decode pass takes one token of each conversation, not " + std::to_string(s.ids.size()));
    if (s.state->length + std::int64_t(s.ids.size()) > shape.max_context)
      refuse("the conversation would have " + std::to_string(s.state->length + std::int64_t(s.ids.size())) +
             " tokens; the model's window is " + std::to_string(shape.max_context));
    for (std::int32_t id : s.ids)
      if (id < 0 || id >= shape.vocab)
        refuse("token id " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(shape.vocab));
    std::int32_t last = -1;
    for (std::int32_t i : s.logits_of) {
      if (i <= last || i >= std::int32_t(s.ids.size())) refuse("logits_of must be ascending indices of the segment's tokens");
      last = i;
    }
    rows += std::int64_t(s.ids.size());
  }
  if (rows == 0 || rows > max_rows)
    refuse("a pass of " + std::to_string(rows) + " tokens; this back end takes 1 to " + std::to_string(max_rows));
}

}  // namespace

PassRows set_up_pass(plan::Phase phase, std::span<Segment> segments, const ModelShape& shape, int max_rows) {
  check(phase, segments, shape, max_rows);
  PassRows p;
  for (Segment& s : segments) {
    const int row = int(p.ids.size()), rows = int(s.ids.size());
    s.state->reserve(s.state->length + rows);
    p.segments.push_back({.state = s.state, .position = s.state->length, .row = row, .rows = rows});
    p.ids.insert(p.ids.end(), s.ids.begin(), s.ids.end());
    for (std::int32_t i : s.logits_of) p.output_row.push_back(row + i);
  }
  return p;
}

ops::Pass make_pass(const Weights& weights, const plan::Plan& plan, PassRows& rows, std::vector<std::byte*>& buffers, float* logits) {
  buffers[std::size_t(plan.ids)] = reinterpret_cast<std::byte*>(rows.ids.data());
  buffers[std::size_t(plan.logits)] = reinterpret_cast<std::byte*>(logits);
  return {.shape = &weights.shape(),
          .weights = &weights,
          .plan = &plan,
          .segments = rows.segments,
          .rows = int(rows.ids.size()),
          .output_rows = int(rows.output_row.size()),
          .output_row = rows.output_row.data(),
          .buffers = buffers.data()};
}

void finish_pass(std::span<Segment> segments) {
  for (Segment& s : segments) s.state->length += std::int64_t(s.ids.size());
}

}  // namespace lily
