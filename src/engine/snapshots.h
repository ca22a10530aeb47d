// Places on a session's timeline that it can go back to.
//
// The recurrent state cannot be rolled back, so going back needs a copy taken on the way. A chat goes back at every turn: its
// template renders the last answer again without the thinking. KV blocks are shared with the timeline, not copied: they
// never change once written.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "model/state.h"

namespace lily {

struct Snapshot {
  std::vector<std::int32_t> ids;  // what the state has absorbed
  RecurrentState recurrent;
  std::vector<std::shared_ptr<KvBlock>> blocks;
  std::vector<float> logits;  // after ids; empty: were not computed

  /// Makes `state` what it was.
  void restore(SequenceState& state) const;
};

/// At most `limit` snapshots; the one used longest ago goes first.
class SnapshotList {
 public:
  explicit SnapshotList(int limit) : limit_(limit) {}
  /// The longest one whose ids are a beginning of `ids`; one as long as `ids` only when it has logits. Null: none.
  /// It counts as used. Valid until the next call of keep or clear.
  const Snapshot* deepest(std::span<const std::int32_t> ids);
  /// Copies the state after `ids`; replaces one of the same ids.
  void keep(std::span<const std::int32_t> ids, const SequenceState& state, std::span<const float> logits);
  void clear() { list_.clear(); }
  std::int64_t bytes() const;  // copies alone, without shared blocks

 private:
  int limit_;
  std::list<Snapshot> list_;  // most recently used first
};

}  // namespace lily
