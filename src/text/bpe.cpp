#include "text/bpe.h"

#include <algorithm>
#include <functional>

#include "base/error.h"

namespace lily {
namespace {

constexpr int32_t kEmpty = -1;  // rank of a free slot; previous or next of an end; id of a symbol joined to its left

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

size_t hash_pair(uint64_t key) {
  key *= 0x9E3779B97F4A7C15u;
  return static_cast<size_t>(key ^ key >> 29);
}

}  // namespace

Bpe::Bpe(const std::array<int32_t, 256>& byte_ids, std::vector<Merge> merges)
    : byte_ids_(byte_ids), merges_(std::move(merges)) {
  size_t size = 16;
  while (size < 2 * merges_.size()) size *= 2;
  slots_.assign(size, Slot{0, kEmpty});
  for (size_t rank = 0; rank < merges_.size(); ++rank) {
    const uint64_t key = pair_key(merges_[rank].left, merges_[rank].right);
    size_t i = hash_pair(key) & (size - 1);
    while (slots_[i].rank != kEmpty && slots_[i].pair != key) i = (i + 1) & (size - 1);
    slots_[i] = {key, static_cast<int32_t>(rank)};
  }
}

int32_t Bpe::rank_of(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash_pair(key) & mask;; i = (i + 1) & mask) {
    if (slots_[i].rank == kEmpty) return -1;
    if (slots_[i].pair == key) return slots_[i].rank;
  }
}

// Queue entries sort by rank, then by position: rank in the high half, position of the left symbol in the low half.
void Bpe::push_pair(Scratch& s, int32_t position) const {
  const int32_t rank = rank_of(s.id[position], s.id[s.next[position]]);
  if (rank < 0) return;
  s.queue.push_back(uint64_t{static_cast<uint32_t>(rank)} << 32 | static_cast<uint32_t>(position));
  std::push_heap(s.queue.begin(), s.queue.end(), std::greater<>());
}

void Bpe::encode(std::string_view word, Scratch& s, std::vector<int32_t>& ids) const {
  if (word.size() >= size_t{1} << 31) throw Error(ErrorCode::invalid_argument, "text: a word of 2 GiB or more");
  const auto n = static_cast<int32_t>(word.size());
  if (n == 1) {
    ids.push_back(byte_ids_[static_cast<unsigned char>(word[0])]);
    return;
  }
  s.id.resize(n), s.next.resize(n), s.previous.resize(n), s.queue.clear();
  for (int32_t i = 0; i < n; ++i) {
    s.id[i] = byte_ids_[static_cast<unsigned char>(word[i])];
    s.previous[i] = i - 1;  // kEmpty at the start
    s.next[i] = i + 1 < n ? i + 1 : kEmpty;
  }
  for (int32_t i = 0; i + 1 < n; ++i) {
    const int32_t rank = rank_of(s.id[i], s.id[i + 1]);
    if (rank >= 0) s.queue.push_back(uint64_t{static_cast<uint32_t>(rank)} << 32 | static_cast<uint32_t>(i));
  }
  std::make_heap(s.queue.begin(), s.queue.end(), std::greater<>());

  while (!s.queue.empty()) {
    std::pop_heap(s.queue.begin(), s.queue.end(), std::greater<>());
    const uint64_t entry = s.queue.back();
    s.queue.pop_back();
    const auto at = static_cast<int32_t>(entry & 0xFFFFFFFFu);
    const auto rank = static_cast<int32_t>(entry >> 32);
    if (s.id[at] == kEmpty || s.next[at] == kEmpty) continue;
    // The entry is stale when a neighbour has changed since. The reference compares the result of the merge, not its
    // rank, so an entry also stands for another pair that gives the same token; so it does here.
    const int32_t right = s.next[at];
    const int32_t now = rank_of(s.id[at], s.id[right]);
    if (now < 0 || merges_[now].result != merges_[rank].result) continue;
    s.id[at] = merges_[rank].result;
    s.id[right] = kEmpty;
    s.next[at] = s.next[right];
    if (s.next[at] != kEmpty) s.previous[s.next[at]] = at;
    if (s.previous[at] != kEmpty) push_pair(s, s.previous[at]);
    if (s.next[at] != kEmpty) push_pair(s, at);
  }
  for (int32_t i = 0; i != kEmpty; i = s.next[i]) ids.push_back(s.id[i]);
}

}  // namespace lily
