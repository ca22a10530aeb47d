// Attention on the CPU. All forms walk the keys in blocks aligned to absolute positions with the running maximum and sum of the
// online softmax; a row is never mixed with another, and its bits depend on its own keys alone.
//   prefill: a unit is a block of rows and one KV head; each block of keys is used for all of them while it lies in the cache.
//     A bf16 cache is read by tile registers where the machine has them (attention_amx.h), as 16-bit integers where it multiplies
//     those fast (attention_int16.h), else as float32.
//   decode (attention_decode.cpu.cpp): float32, every K and V row is read once for all its query heads.
#include <string.h>

#include "ops/attention/attention_amx.h"
#include "ops/attention/attention_int16.h"
#include "ops/attention/attention_tile.h"

namespace lily::ops::LILY_ISA {

std::int64_t attention_decode_units(const AttentionArgs& a);
void attention_decode_run(const AttentionArgs& a, std::int64_t begin, std::int64_t end, CpuScratch& scratch);

constexpr int kPrefillRows = 48;  // rows of a unit, at most
constexpr int kMostKeys = 128;    // keys of a block in float32 or in integers, at most

/// Rows of one segment and query heads of one KV head.
struct PrefillUnit {
  const SequenceState* state;
  int row, rows;          // of the pass
  std::int64_t position;  // of the first row
  int kv_head, head, heads;
  LILY_SIMD_MEMBER std::int64_t keys() const { return position + rows; }
  /// First row that sees keys from k0 on, and how many of the `block` keys at k0 row r sees.
  LILY_SIMD_MEMBER int first_row(std::int64_t k0) const { return k0 > position ? int(k0 - position) : 0; }
  LILY_SIMD_MEMBER int keys_seen(int r, std::int64_t k0, int block) const {
    const std::int64_t own = position + r + 1 - k0;
    return own < block ? int(own) : block;
  }
};

LILY_SIMD std::int64_t padded_dim(const AttentionArgs& a) { return div_up(a.head_dim, kPair) * kPair; }

/// Rows whose sums and q fit the scratch beside one block of keys.
LILY_SIMD int prefill_rows(const AttentionArgs& a) {
  const std::int64_t padded = padded_dim(a), share = a.heads / a.kv_heads;
  std::int64_t block = 2 * kMostKeys * (padded + 1) + 8 * kTileHeads * kMostKeys +  // floats: K, V, their scales, scores
                       kMostKeys + kMostKeys / kPair * padded;                      // pair sums
#if defined(LILY_AMX)
  const std::int64_t tiles = amx::block_floats(a.head_dim);
  if (tiles > block) block = tiles;
#endif
  const std::int64_t fit = (std::int64_t(kCpuScratchBytes) / 4 - block) / (share * (2 * padded + 5));
  return fit < 1 ? 1 : fit < kPrefillRows ? int(fit) : kPrefillRows;
}

/// Where q (or o) of the unit's query head i begins; they count by rows.
LILY_SIMD std::int64_t head_at(const AttentionArgs& a, const PrefillUnit& u, std::int64_t i) {
  return ((u.row + i / u.heads) * a.heads + u.head + i % u.heads) * a.head_dim;
}

/// o of the unit's rows from their sums.
static void write_rows(const AttentionArgs& a, const PrefillUnit& u, HeadSums s) {
  for (int r = 0; r < u.rows; ++r) {
    for (int h = 0; h < u.heads; ++h) {
      const F32 l = set1(s.l[r * u.heads + h]);
      const float* from = s.o + (std::int64_t(r) * u.heads + h) * s.o_stride;
      float* o = a.o + (std::int64_t(u.row + r) * a.heads + u.head + h) * a.head_dim;
      LILY_FOR_LANES(c, n, a.head_dim) store_part(o + c, load(from + c) / l, n);
    }
  }
}

template <class Kv>
static void prefill_f32(const AttentionArgs& a, const PrefillUnit& u, CpuScratch& scratch) {
  const int share = u.heads, dim = a.head_dim;
  const float scale = rsqrt(float(dim));
  const std::int64_t heads = std::int64_t(u.rows) * share, padded = padded_dim(a), q_dim = arranged_dim<Kv>(dim);
  float* p = reinterpret_cast<float*>(scratch.data);  // [kTileHeads][kKeys]
  float* o = p + kTileHeads * kKeys;                  // [rows][share][padded]
  const HeadSums sums{o + heads * padded, o + heads * (padded + 1), o, padded};
  float* q = sums.l + heads;                          // [rows][share][q_dim]
  clear_sums(sums, heads);
  for (int r = 0; r < u.rows; ++r) {
    const float* from = a.q + (std::int64_t(u.row + r) * a.heads + u.head) * dim;
    for_head_tiles(share, [&](auto width, int h) __attribute__((always_inline)) {
      arrange_q<Kv, decltype(width)::value>(from + std::int64_t(h) * dim, dim, q + (std::int64_t(r) * share + h) * q_dim);
    });
  }
  for (std::int64_t k0 = 0; k0 < u.keys(); k0 += kKeys) {
    for (int r = u.first_row(k0); r < u.rows; ++r) {
      const KeyBlock block = key_block<Kv>(a, *u.state, u.kv_head, k0, u.keys_seen(r, k0, kKeys));
      for_head_tiles(share, [&](auto width, int h) __attribute__((always_inline)) {
        const std::int64_t i = std::int64_t(r) * share + h;
        const HeadSums mine{sums.m + i, sums.l + i, sums.o + i * padded, padded};
        attend_block<Kv, decltype(width)::value, false>(block, nullptr, q + i * q_dim, scale, p, mine);
      });
    }
  }
  write_rows(a, u, sums);
}

#if defined(__x86_64__)
static void prefill_int16(const AttentionArgs& a, const PrefillUnit& u, CpuScratch& scratch) {
  const int share = u.heads, dim = a.head_dim, key_words = (dim + 1) / 2;
  const float scale = rsqrt(float(dim));
  const std::int64_t heads = std::int64_t(u.rows) * share, padded = padded_dim(a), q_words = padded / 2;
  float* scores = reinterpret_cast<float*>(scratch.data);  // [kTurnRows][kTileHeads][kKeys16]
  auto* p = reinterpret_cast<std::int16_t*>(scores + kTurnRows * kTileHeads * kKeys16);  // likewise
  float* k_scale = scores + 2 * kTurnRows * kTileHeads * kKeys16;
  auto* words = reinterpret_cast<std::uint32_t*>(k_scale + 2 * kKeys16);
  auto* k_pairs = reinterpret_cast<std::int32_t*>(words + kKeys16 * padded);
  std::int32_t* v_pairs = k_pairs + kKeys16;
  const bool paired = a.paired && adds_beside_products();
  const Int16Block block{words, words + kKeys16 * padded / 2, k_scale, k_scale + kKeys16, dim, key_words, k_pairs, v_pairs, paired};
  float* o = reinterpret_cast<float*>(v_pairs + kKeys16 / kPair * padded);
  const HeadSums sums{o + heads * padded, o + heads * (padded + 1), o, padded};
  float* q_scale = sums.l + heads;                                  // [rows][share]
  auto* q = reinterpret_cast<std::uint32_t*>(q_scale + heads);      // [rows][share][q_words]
  auto* q_pairs = reinterpret_cast<std::int32_t*>(q + heads * q_words);  // [rows][share]
  clear_sums(sums, heads);
  for (std::int64_t i = 0; i < heads; ++i) {
    const float* from = a.q + head_at(a, u, i);
    q_scale[i] = round_query(from, dim, reinterpret_cast<std::int16_t*>(q + i * q_words)) * scale;
    if (paired) q_pairs[i] = minus_paired_products(q + i * q_words, key_words / 2 * 2);
  }
  for (std::int64_t k0 = 0; k0 < u.keys(); k0 += kKeys16) {
    const int have = u.keys() - k0 < kKeys16 ? int(u.keys() - k0) : kKeys16;
    const KeyBlock from = key_block<KvBf16>(a, *u.state, u.kv_head, k0, have);
    round_keys(from, block);
    round_values(from, block);
    for (int r0 = u.first_row(k0); r0 < u.rows; r0 += kTurnRows) {
      for_head_tiles(share, [&](auto width, int h) __attribute__((always_inline)) {
        Turn turns[kTurnRows] = {};
        for (int r = r0; r < u.rows && r < r0 + kTurnRows; ++r) {
          const std::int64_t i = std::int64_t(r) * share + h;
          turns[r - r0] = {u.keys_seen(r, k0, kKeys16),
                           {q + i * q_words, q_words, q_scale + i, q_pairs + i},
                           {sums.m + i, sums.l + i, sums.o + i * padded, padded}};
        }
        if (paired) attend_block16<decltype(width)::value, kCanPair>(block, turns, scores, p);
        else attend_block16<decltype(width)::value, false>(block, turns, scores, p);
      });
    }
  }
  write_rows(a, u, sums);
}
#else
static void prefill_int16(const AttentionArgs& a, const PrefillUnit& u, CpuScratch& scratch) { prefill_f32<KvBf16>(a, u, scratch); }
#endif

#if defined(LILY_AMX)
static void prefill_amx(const AttentionArgs& a, const PrefillUnit& u, CpuScratch& scratch) {
  const int share = u.heads, dim = a.head_dim, queries = u.rows * share;
  const std::int64_t pairs = div_up(queries, amx::kPairQueries), places = pairs * amx::kPairQueries, pair_values = amx::kPairQueries * dim;
  const amx::AmxScratch x = amx::amx_scratch(scratch, dim, places);
  clear_sums({x.m, x.l, x.o, dim}, places);
  const auto query = [&](int i) __attribute__((always_inline)) { return a.q + head_at(a, u, i); };
  amx::arrange_queries(query, queries, dim, rsqrt(float(dim)), x.q);
  const amx::TileRegisters registers(amx::whole_tiles(), true);
  for (std::int64_t k0 = 0; k0 < u.keys(); k0 += amx::kAmxKeys) {
    const int have = u.keys() - k0 < amx::kAmxKeys ? int(u.keys() - k0) : amx::kAmxKeys;
    const KeyBlock block = key_block<KvBf16>(a, *u.state, u.kv_head, k0, have);
    const std::int64_t first_pair = u.first_row(k0) * share / amx::kPairQueries;
    amx::NextBlock next = {};
    if (k0 + amx::kAmxKeys < u.keys()) {
      const KeyBlock b = key_block<KvBf16>(a, *u.state, u.kv_head, k0 + amx::kAmxKeys, 0);
      const std::int64_t lines = amx::kAmxKeys * dim / 32, steps = (pairs - first_pair) * amx::kBlockSteps * (dim / amx::kStep);
      next = {reinterpret_cast<const char*>(b.k), reinterpret_cast<const char*>(b.v), int(div_up(lines, steps))};
    }
    const float* spoilt = amx::arrange_values(block, x.v, x.spoilt) ? x.spoilt : nullptr;
    for (std::int64_t n = first_pair; n < pairs; ++n) {
      int seen[amx::kPairQueries], most = 0;
      for (int j = 0; j < amx::kPairQueries; ++j) {
        const int i = int(n) * amx::kPairQueries + j;
        seen[j] = i < queries ? u.keys_seen(i / share, k0, amx::kAmxKeys) : 0;
        if (seen[j] > most) most = seen[j];
      }
      const int keys = int(round_up(most, amx::kStep));
      amx::score_pair(block, x.q + n * pair_values, keys, next, x.scores);
      for (int t = 0; t < 2; ++t) {
        const std::int64_t first = n * amx::kPairQueries + t * amx::kTile;
        alignas(64) float keep[amx::kTile];
        amx::soften_tile(x.scores + t * amx::kTile * amx::kAmxKeys, keys, seen + t * amx::kTile, spoilt, x.m + first, x.l + first, keep,
                         x.p + t * amx::kTile * amx::kAmxKeys);
        amx::scale_sums(keep, dim, x.o + first * dim);
      }
      amx::add_values(x.p, x.v, keys, dim, x.o + n * pair_values);
    }
  }
  for (int i = 0; i < queries; ++i) {
    const float* from = x.o + std::int64_t(i / amx::kTile) * amx::kTile * dim + i % amx::kTile * amx::kTile;
    float* o = a.o + head_at(a, u, i);
    for (int c = 0; c < dim; c += amx::kTile, from += amx::kTileWords) store(o + c, load(from) / set1(x.l[i]) + zero());
  }
}
#endif

std::int64_t attention_units(const AttentionArgs& a) {
  if (a.decode) return attention_decode_units(a);
  std::int64_t blocks = 0;
  for (std::size_t s = 0; s < a.segments.size(); ++s) blocks += div_up(a.segments.data()[s].rows, prefill_rows(a));
  return blocks * a.kv_heads;
}

void attention_run(const AttentionArgs& a, std::int64_t begin, std::int64_t end, CpuScratch& scratch) {
  if (a.decode) return attention_decode_run(a, begin, end, scratch);
  const std::int64_t total = attention_units(a), tile = prefill_rows(a);
  for (std::int64_t n = begin; n < end; ++n) {
    std::int64_t block = (total - 1 - n) / a.kv_heads;  // the last rows see the most keys: they go first
    const SegmentRows* seg = a.segments.data();
    for (; block >= div_up(seg->rows, tile); ++seg) block -= div_up(seg->rows, tile);
    const int r0 = int(block * tile), rows = seg->rows - r0 < tile ? seg->rows - r0 : int(tile);
    const int kv_head = int((total - 1 - n) % a.kv_heads), share = a.heads / a.kv_heads, heads = a.packed ? share : 1;
    for (int h = 0; h < share; h += heads) {
      const PrefillUnit u{seg->state, seg->row + r0, rows, seg->position + r0, kv_head, kv_head * share + h, heads};
      if (seg->state->layout.kv_type == DType::f32) prefill_f32<KvF32>(a, u, scratch);
#if defined(LILY_AMX)
      else if (amx::takes_tiles(a.head_dim)) prefill_amx(a, u, scratch);
#endif
      else prefill_int16(a, u, scratch);
    }
  }
}

}  // namespace lily::ops::LILY_ISA
