// Byte-pair encoding of one word: join the pair of neighbours whose merge comes first in the list, until none is left.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lily {

class Bpe {
 public:
  struct Merge {
    int32_t left, right;  // token ids
    int32_t result;
  };
  /// Buffers reused between words; one for each thread.
  struct Scratch {
    std::vector<int32_t> id, next, previous;
    std::vector<uint64_t> queue;
  };

  Bpe() = default;
  /// `byte_ids`: the token of each single byte. `merges` in order of rank; of two equal pairs the later counts.
  Bpe(const std::array<int32_t, 256>& byte_ids, std::vector<Merge> merges);

  /// Appends the ids of `word` (any bytes, fewer than 2^31). O(n log n) in its length, with no recursion.
  void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  int32_t rank_of(int32_t left, int32_t right) const;  // -1: no such merge
  void push_pair(Scratch& s, int32_t position) const;

  struct Slot {
    uint64_t pair;
    int32_t rank;
  };
  std::array<int32_t, 256> byte_ids_{};
  std::vector<Merge> merges_;
  std::vector<Slot> slots_;  // open addressing, a power of two of slots, at most half of them taken
};

}  // namespace lily
