#include "engine/prefix_cache.h"

#include <algorithm>

namespace lily {
namespace {

using Ids = std::span<const std::int32_t>;

bool begins(Ids ids, Ids beginning) {
  return beginning.size() <= ids.size() && std::equal(beginning.begin(), beginning.end(), ids.begin());
}

std::int64_t common(Ids a, Ids b) {
  const auto parted = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return parted.first - a.begin();
}

}  // namespace

Snapshot::Snapshot(Ids absorbed, const SequenceState& state, std::span<const float> after)
    : ids(absorbed.begin(), absorbed.end()), recurrent(state.recurrent), logits(after.begin(), after.end()) {
  // Only the blocks that hold positions of the ids: later ones would be copied for nothing.
  const std::size_t used = std::size_t(kv_blocks(std::int64_t(ids.size())));
  blocks.assign(state.blocks.begin(), state.blocks.begin() + std::ptrdiff_t(std::min(used, state.blocks.size())));
}

void Snapshot::restore(SequenceState& state) const {
  state.recurrent = recurrent;
  state.blocks = blocks;
  state.block_data.clear();
  for (const auto& block : blocks) state.block_data.push_back(block->data());
  state.length = std::int64_t(ids.size());
}

std::int64_t Snapshot::own_bytes() const {
  return 4 * std::int64_t(recurrent.recurrent.size() + recurrent.conv.size() + logits.size() + ids.size());
}

/// `usable`: one of all of `ids` counts with logits alone.
PrefixCache::Entry* PrefixCache::find_deepest(Ids ids, bool usable) const {
  Entry* best = nullptr;
  for (Entry& e : entries_) {
    const Snapshot& s = *e.snapshot;
    if (best && s.ids.size() <= best->snapshot->ids.size()) continue;
    if (usable && s.ids.size() == ids.size() && s.logits.empty()) continue;
    if (begins(ids, s.ids)) best = &e;
  }
  return best;
}

std::shared_ptr<const Snapshot> PrefixCache::deepest(Ids ids) {
  const std::lock_guard lock(mutex_);
  ++now_;
  Entry* const best = find_deepest(ids, true);
  if (!best) return nullptr;
  best->last_use = now_;
  ++best->uses;
  return best->snapshot;
}

std::int64_t PrefixCache::known(Ids ids) const {
  const std::lock_guard lock(mutex_);
  const Entry* const best = find_deepest(ids, true);
  return best ? std::int64_t(best->snapshot->ids.size()) : 0;
}

bool PrefixCache::keep(std::shared_ptr<const Snapshot> snapshot, Ids prompt) {
  const std::lock_guard lock(mutex_);
  const Ids ids = snapshot->ids;
  std::int64_t uses = 0;
  for (auto e = entries_.begin(); e != entries_.end(); ++e) {
    if (e->snapshot->ids.size() != ids.size() || !begins(ids, e->snapshot->ids)) continue;
    uses = e->uses;
    erase(e);
    break;
  }
  Entry* const parent = find_deepest(ids, false);
  entries_.push_front({.snapshot = snapshot, .parent = parent, .last_use = now_, .uses = uses});
  Entry& entry = entries_.front();
  for (Entry& e : entries_)
    if (&e != &entry && e.parent == entry.parent && begins(e.snapshot->ids, ids)) e.parent = &entry;
  for (const auto& block : snapshot->blocks) {
    ++block_uses_[block.get()];
    block_bytes_ = block->bytes();
  }
  own_bytes_ += snapshot->own_bytes();
  ++kept_;
  return make_room(prompt, &entry);
}

void PrefixCache::erase(Entries::iterator entry) {
  for (Entry& e : entries_)
    if (e.parent == &*entry) e.parent = entry->parent;
  for (const auto& block : entry->snapshot->blocks) {
    const auto found = block_uses_.find(block.get());
    if (--found->second == 0) block_uses_.erase(found);
  }
  own_bytes_ -= entry->snapshot->own_bytes();
  entries_.erase(entry);
}

double PrefixCache::value(const Entry& entry) const {
  const std::int64_t tokens =
      std::int64_t(entry.snapshot->ids.size()) - (entry.parent ? std::int64_t(entry.parent->snapshot->ids.size()) : 0);
  std::int64_t freed = entry.snapshot->own_bytes();
  for (const auto& block : entry.snapshot->blocks)
    if (block_uses_.at(block.get()) == 1) freed += block->bytes();
  const double age = double(now_ - entry.last_use);
  return double(tokens) * double(1 + entry.uses) / (double(freed) * (1 + age));
}

bool PrefixCache::full() const {
  return int(entries_.size()) > limits_.snapshots ||
         own_bytes_ + std::int64_t(block_uses_.size()) * block_bytes_ > limits_.bytes - reserved_;
}

/// False: `newest` itself had to go.
bool PrefixCache::make_room(Ids prompt, const Entry* newest) {
  bool kept = true;
  while (full() && !entries_.empty()) {
    // In this order: the rest of the world, what the prompt begins with, the newest itself.
    auto worst = entries_.end();
    const auto rank = [&](const Entry& e) { return &e == newest ? 2 : begins(prompt, e.snapshot->ids) ? 1 : 0; };
    for (auto e = entries_.begin(); e != entries_.end(); ++e) {
      if (worst == entries_.end() || rank(*e) < rank(*worst) || (rank(*e) == rank(*worst) && value(*e) < value(*worst))) worst = e;
    }
    kept = kept && &*worst != newest;
    erase(worst);
    ++evicted_;
  }
  return kept;
}

void PrefixCache::forget(Ids ids) {
  const std::lock_guard lock(mutex_);
  for (auto e = entries_.begin(); e != entries_.end();) {
    const auto here = e++;
    if (begins(ids, here->snapshot->ids)) erase(here);
  }
}

void PrefixCache::reserve(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  reserved_ = bytes;
  make_room({}, nullptr);
}

Parting PrefixCache::parting(Ids ids) const {
  const std::lock_guard lock(mutex_);
  Parting p;
  const Snapshot* nearest = nullptr;
  for (const Entry& e : entries_) {
    const std::int64_t same = common(ids, e.snapshot->ids);
    const bool goes_on = same == std::int64_t(e.snapshot->ids.size()) && same < std::int64_t(ids.size());  // from all of it: no parting
    if (same > p.at || (same > 0 && same == p.at && !goes_on && !nearest)) p.at = same, nearest = goes_on ? nullptr : e.snapshot.get();
  }
  if (!nearest) return p;
  constexpr std::int64_t kAround = 8;
  p.cached_from = std::max<std::int64_t>(0, p.at - kAround);
  const auto end = std::min(std::int64_t(nearest->ids.size()), p.at + kAround);
  p.cached.assign(nearest->ids.begin() + p.cached_from, nearest->ids.begin() + end);
  return p;
}

std::vector<std::shared_ptr<const Snapshot>> PrefixCache::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const Snapshot>> all;
  for (const Entry& e : entries_) all.push_back(e.snapshot);
  return all;
}

CacheUse PrefixCache::use() const {
  const std::lock_guard lock(mutex_);
  return {.snapshots = int(entries_.size()),
          .snapshot_bytes = own_bytes_,
          .kv_bytes = std::int64_t(block_uses_.size()) * block_bytes_,
          .evicted = evicted_,
          .kept = kept_};
}

}  // namespace lily
