#include "engine/snapshots.h"

#include <algorithm>

namespace lily {
namespace {

bool begins(std::span<const std::int32_t> ids, std::span<const std::int32_t> beginning) {
  return beginning.size() <= ids.size() && std::equal(beginning.begin(), beginning.end(), ids.begin());
}

}  // namespace

void Snapshot::restore(SequenceState& state) const {
  state.recurrent = recurrent;
  state.blocks = blocks;
  state.block_data.clear();
  for (const auto& block : blocks) state.block_data.push_back(block->data());
  state.length = std::int64_t(ids.size());
}

const Snapshot* SnapshotList::deepest(std::span<const std::int32_t> ids) {
  auto best = list_.end();
  for (auto s = list_.begin(); s != list_.end(); ++s) {
    const bool usable = begins(ids, s->ids) && (s->ids.size() < ids.size() || !s->logits.empty());
    if (usable && (best == list_.end() || s->ids.size() > best->ids.size())) best = s;
  }
  if (best == list_.end()) return nullptr;
  list_.splice(list_.begin(), list_, best);
  return &list_.front();
}

void SnapshotList::keep(std::span<const std::int32_t> ids, const SequenceState& state, std::span<const float> logits) {
  if (limit_ <= 0) return;
  std::erase_if(list_, [&](const Snapshot& s) { return s.ids.size() == ids.size() && begins(ids, s.ids); });
  while (int(list_.size()) >= limit_) list_.pop_back();
  // Only the blocks that hold positions of `ids`: later ones would be copied for nothing.
  const std::size_t used = (ids.size() + kKvBlockTokens - 1) / kKvBlockTokens;
  list_.push_front(Snapshot{.ids = {ids.begin(), ids.end()},
                            .recurrent = state.recurrent,
                            .blocks = {state.blocks.begin(), state.blocks.begin() + std::min(used, state.blocks.size())},
                            .logits = {logits.begin(), logits.end()}});
}

std::int64_t SnapshotList::bytes() const {
  std::int64_t sum = 0;
  for (const Snapshot& s : list_) {
    sum += std::int64_t(sizeof(float)) *
           std::int64_t(s.recurrent.recurrent.size() + s.recurrent.conv.size() + s.logits.size() + s.ids.size());
  }
  return sum;
}

}  // namespace lily
