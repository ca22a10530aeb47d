// Snapshots on disk, so that conversations survive a restart (`lily serve --cache-dir`).
//
// DIR/<key>/ holds the states of one model in one arithmetic; <key> is a hash of all that a state depends on. A snapshot is one
// file, each of its KV blocks another, since snapshots of one conversation share most of them. Files are written under another name
// and then renamed, and end in a SHA-256 of what is before: one that was cut, or is not what it says, is a miss and is removed.
// Readable by their owner alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "engine/prefix_cache.h"

namespace lily {

/// What states depend on: the checkpoint's files (names, sizes, a sample of their bytes), Backend::arithmetic() and the layout of a state.
std::string state_key(const std::vector<std::filesystem::path>& files, const StateLayout& layout, const std::string& arithmetic);

struct CacheStoreUse {
  int snapshots = 0;
  std::int64_t bytes = 0;
};

/// Thread-safe.
class CacheStore {
 public:
  /// Reads what is there (ids alone). Error(io) when `dir` cannot be made or written to.
  CacheStore(const std::filesystem::path& dir, const std::string& key, const StateLayout& layout, std::int64_t vocab, std::int64_t limit_bytes);

  /// The deepest stored snapshot of a beginning of `ids` with more than `known` tokens; null: none, or it could not be read.
  std::shared_ptr<const Snapshot> load(std::span<const std::int32_t> ids, std::int64_t known);
  /// Writes what is not there yet; the least recently used make room. A disk that is full is told once and changes nothing.
  void keep(const std::shared_ptr<const Snapshot>& snapshot);
  CacheStoreUse use() const;

 private:
  struct Stored {
    std::string name;
    std::vector<std::int32_t> ids;
    std::vector<std::string> blocks;
    bool has_logits = false;
    std::int64_t bytes = 0;  // of its own file
  };
  using Entries = std::list<Stored>;

  void scan();
  bool read_head(const std::string& name, Stored& stored) const;
  std::shared_ptr<KvBlock> read_block(const std::string& name);
  std::int64_t write(const std::string& name, const std::vector<std::span<const std::byte>>& parts);
  void remove(Entries::iterator entry);
  std::int64_t bytes() const;

  mutable std::mutex mutex_;
  std::filesystem::path dir_;
  StateLayout layout_;
  std::int64_t vocab_, limit_, own_bytes_ = 0;
  Entries entries_;                        // most recently used first
  std::map<std::string, int> block_uses_;  // by how many entries
  struct Known {
    std::weak_ptr<KvBlock> block;
    std::string name;
  };
  std::unordered_map<const KvBlock*, Known> known_;  // blocks that are on disk already
  bool told_ = false;
};

}  // namespace lily
