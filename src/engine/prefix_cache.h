// The conversation cache: states that prompts may begin with, kept under one budget of bytes.
//
// The recurrent state cannot be rolled back, so going back needs a copy (a snapshot) taken on the way. A chat goes back at every
// turn: its template renders the last answer again without the thinking. KV blocks are shared by reference count between
// snapshots and conversations, not copied: they never change once written.
//
// What goes first when room is needed: the snapshot of least value, that is of the fewest tokens that would have to be read again
// without it (those beyond the next shorter snapshot of the same ids) for each byte that its going frees, times its uses, divided by
// the lookups since the last of them. Never one that the prompt being read begins with, while there is another.
#pragma once

#include <climits>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "model/state.h"

namespace lily {

/// Immutable once kept: any number of conversations may start from one.
struct Snapshot {
  std::vector<std::int32_t> ids;  // what the state has absorbed
  RecurrentState recurrent;
  std::vector<std::shared_ptr<KvBlock>> blocks;  // those that hold positions of ids
  std::vector<float> logits;                     // after ids; empty: were not computed

  Snapshot() = default;
  /// Copies `state`, its first ids.size() positions.
  Snapshot(std::span<const std::int32_t> ids, const SequenceState& state, std::span<const float> logits);
  /// Makes `state` what it was.
  void restore(SequenceState& state) const;
  std::int64_t own_bytes() const;  // without the blocks
};

struct CacheLimits {
  std::int64_t bytes = INT64_MAX;  // of everything, blocks counted once
  int snapshots = INT_MAX;
};

struct CacheUse {
  int snapshots = 0;
  std::int64_t snapshot_bytes = 0, kv_bytes = 0;
  std::int64_t evicted = 0;  // since the start
  std::int64_t kept = 0;     // ″
};

/// Where a prompt parts from the cached ids that are most like it, or goes on from all of them: then `cached` is empty.
struct Parting {
  std::int64_t at = 0;               // tokens they have in common
  std::vector<std::int32_t> cached;  // a few ids of the cached one, around `at`
  std::int64_t cached_from = 0;      // the position of the first of them
};

/// Thread-safe.
class PrefixCache {
 public:
  explicit PrefixCache(CacheLimits limits) : limits_(limits) {}

  /// The longest one whose ids are a beginning of `ids`; one as long as `ids` only when it has logits. Null: none. It counts as used.
  std::shared_ptr<const Snapshot> deepest(std::span<const std::int32_t> ids);
  /// The length of the one that deepest() would give.
  std::int64_t known(std::span<const std::int32_t> ids) const;
  /// Keeps `snapshot`, in place of one of the same ids; others go to make room. `prompt` is what is being read: snapshots that it
  /// begins with stay while there are others. False: it has no room of its own.
  bool keep(std::shared_ptr<const Snapshot> snapshot, std::span<const std::int32_t> prompt);
  /// Drops every snapshot that `ids` begin with.
  void forget(std::span<const std::int32_t> ids);

  /// Bytes that others (running conversations) need of the same budget, from now on; snapshots go to make room.
  void reserve(std::int64_t bytes);
  Parting parting(std::span<const std::int32_t> ids) const;
  CacheUse use() const;
  std::vector<std::shared_ptr<const Snapshot>> all() const;

 private:
  struct Entry {
    std::shared_ptr<const Snapshot> snapshot;
    Entry* parent = nullptr;  // the deepest other one that its ids begin with
    std::int64_t last_use = 0, uses = 0;
  };
  using Entries = std::list<Entry>;

  Entry* find_deepest(std::span<const std::int32_t> ids, bool usable) const;
  void erase(Entries::iterator entry);
  bool make_room(std::span<const std::int32_t> prompt, const Entry* newest);
  double value(const Entry& entry) const;
  bool full() const;

  mutable std::mutex mutex_;
  CacheLimits limits_;
  mutable Entries entries_;  // find_deepest() gives out what others may change
  std::unordered_map<const KvBlock*, int> block_uses_;  // by how many entries
  std::int64_t block_bytes_ = 0;                        // of one block; 0: none seen yet
  std::int64_t own_bytes_ = 0, reserved_ = 0, now_ = 0, evicted_ = 0, kept_ = 0;
};

}  // namespace lily
