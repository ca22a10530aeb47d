// What the two forms of CPU attention share: blocks of keys, and access to the cache. Same rules as ops/simd.h.
#pragma once

#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

constexpr int kPair = 2 * kLanes;   // channels (or keys) of a product's inner tile
constexpr int kTileHeads = kLanes == 8 ? 4 : 8;  // query heads that share a pass over keys: as many as the registers hold

/// Two vectors out of kPair stored channels; `interleaved`: the even ones and the odd ones, else first and second half.
struct KvBf16 {
  using Type = std::uint16_t;
  static constexpr bool interleaved = true;
  LILY_SIMD void load_pair(const Type* p, F32* a, F32* b) { load_bf16_pairs(p, a, b); }
  LILY_SIMD F32 load_vector(const Type* p) { return load_bf16(p); }
  LILY_SIMD float scalar(const Type* p) { return bf16_to_float(*p); }
};
struct KvF32 {
  using Type = float;
  static constexpr bool interleaved = false;
  LILY_SIMD void load_pair(const Type* p, F32* a, F32* b) {
    *a = load(p);
    *b = load(p + kLanes);
  }
  LILY_SIMD F32 load_vector(const Type* p) { return load(p); }
  LILY_SIMD float scalar(const Type* p) { return *p; }
};

/// K (or V) of the keys from `position` on, up to the end of their block: [keys][head_dim].
template <class Kv>
LILY_SIMD const typename Kv::Type* kv_rows(const AttentionArgs& a, const SequenceState& state, bool v, int head,
                                           std::int64_t position) {
  const std::byte* block = state.block_data.data()[position / kKvBlockTokens];
  return reinterpret_cast<const typename Kv::Type*>(block + state.layout.kv_offset(a.attention_layer, v, head)) +
         position % kKvBlockTokens * a.head_dim;
}

}  // namespace lily::ops::LILY_ISA
