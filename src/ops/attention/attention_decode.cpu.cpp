// Decode attention. A unit is one row, one KV head and one range of keys: it reads each K and V row of the range once for all
// the query heads that share it, and leaves maximum, sum and weighted values. Whoever finishes a row's last range joins the
// ranges, in their order. How the keys are cut depends on the row's position alone.
#include <string.h>

#include "ops/attention/attention_tile.h"

namespace lily::ops::LILY_ISA {

LILY_SIMD std::int64_t part_dim(const AttentionArgs& a) { return div_up(a.head_dim, 32) * 32; }

/// Result of one range for the query heads of a KV head, in attention_partial_stride(a) floats.
LILY_SIMD HeadSums range_sums(const AttentionArgs& a, float* p) {
  const std::int64_t heads = a.heads / a.kv_heads, dim = part_dim(a);
  return {p + heads * dim, p + heads * (dim + 1), p, dim};
}

struct DecodeScratch {
  float *q, *p, *weight, *own;  // [heads / kv_heads][arranged_dim], [kTileHeads][kKeys], [ranges], [ranges][partial stride]
};
LILY_SIMD DecodeScratch decode_scratch(const AttentionArgs& a, CpuScratch& scratch, std::int64_t ranges) {
  DecodeScratch s;
  s.p = reinterpret_cast<float*>(scratch.data);
  s.q = s.p + kTileHeads * kKeys;
  s.weight = s.q + a.heads / a.kv_heads * (a.head_dim + std::int64_t(1));
  s.own = s.weight + div_up(ranges, 16) * 16;
  return s;
}

/// Keys [begin, end) of one KV head for its query heads [head, head + heads) of the row; sums at the first of them.
template <class Kv>
static void walk_range(const AttentionArgs& a, const SequenceState& state, int row, int head, int heads, std::int64_t begin,
                       std::int64_t end, HeadSums sums, const DecodeScratch& s) {
  const int dim = a.head_dim, kv_head = head / (a.heads / a.kv_heads);
  const float scale = rsqrt(float(dim));
  const float* q = a.q + (std::int64_t(row) * a.heads + head) * dim;
  for_head_tiles(heads, [&](auto width, int h) __attribute__((always_inline)) {
    arrange_q<Kv, decltype(width)::value>(q + std::int64_t(h) * dim, dim, s.q + h * arranged_dim<Kv>(dim));
  });
  clear_sums(sums, heads);
  for (std::int64_t at = begin; at < end; at += kKeys) {
    const KeyBlock block = key_block<Kv>(a, state, kv_head, at, end - at < kKeys ? int(end - at) : kKeys);
    const std::uint32_t* next = at + kKeys < end ? key_block<Kv>(a, state, kv_head, at + kKeys, 1).k : block.k;
    for_head_tiles(heads, [&](auto width, int h) __attribute__((always_inline)) {
      constexpr int Q = decltype(width)::value;
      const HeadSums mine{sums.m + h, sums.l + h, sums.o + h * sums.o_stride, sums.o_stride};
      const float* arranged = s.q + h * arranged_dim<Kv>(dim);
      if (h == 0) attend_block<Kv, Q, true>(block, next, arranged, scale, s.p, mine);
      else attend_block<Kv, Q, false>(block, next, arranged, scale, s.p, mine);
    });
  }
}

static void range_unit(const AttentionArgs& a, const SequenceState& state, int row, int kv_head, std::int64_t begin,
                       std::int64_t end, HeadSums sums, const DecodeScratch& s) {
  const int share = a.heads / a.kv_heads, step = a.packed ? share : 1;
  for (int h = 0; h < share; h += step) {
    const HeadSums mine{sums.m + h, sums.l + h, sums.o + h * sums.o_stride, sums.o_stride};
    if (state.layout.kv_type == DType::bf16) walk_range<KvBf16>(a, state, row, kv_head * share + h, step, begin, end, mine, s);
    else walk_range<KvF32>(a, state, row, kv_head * share + h, step, begin, end, mine, s);
  }
}

/// o of one row's query heads of a KV head from its ranges, which lie `stride` floats apart.
static void join_ranges(const AttentionArgs& a, int row, int kv_head, float* parts, std::int64_t stride, int ranges, float* weight) {
  const int share = a.heads / a.kv_heads;
  for (int h = 0; h < share; ++h) {
    float most = -__builtin_inff(), total = 0;
    for (int i = 0; i < ranges; ++i) {
      const float m = range_sums(a, parts + i * stride).m[h];
      if (!(m <= most)) most = m;  // a NaN stays
    }
    for (int i = 0; i < ranges; ++i) {
      const HeadSums part = range_sums(a, parts + i * stride);
      weight[i] = exp1(part.m[h] - most);
      total += weight[i] * part.l[h];
    }
    float* o = a.o + (std::int64_t(row) * a.heads + std::int64_t(kv_head) * share + h) * a.head_dim;
    const std::int64_t from = h * part_dim(a);
    LILY_FOR_LANES(c, n, a.head_dim) {
      F32 sum = zero();
      for (int i = 0; i < ranges; ++i) sum = fma(set1(weight[i]), load(parts + i * stride + from + c), sum);
      store_part(o + c, sum / set1(total), n);
    }
  }
}

std::int64_t attention_decode_units(const AttentionArgs& a) {
  return a.partial ? std::int64_t(a.rows) * a.kv_heads * attention_ranges(a) : std::int64_t(a.rows) * a.kv_heads;
}

void attention_decode_run(const AttentionArgs& a, std::int64_t begin, std::int64_t end, CpuScratch& scratch) {
  const std::int64_t most = attention_ranges(a), stride = attention_partial_stride(a);
  const DecodeScratch s = decode_scratch(a, scratch, most);
  for (std::int64_t u = begin; u < end; ++u) {
    const std::int64_t pair = a.partial ? u / most : u;  // (row, KV head)
    const int row = int(pair / a.kv_heads), kv_head = int(pair % a.kv_heads);
    const SegmentRows& seg = segment_of(a.segments.data(), row);
    const std::int64_t keys = seg.position + (row - seg.row) + 1, range = attention_range(keys);
    const int ranges = int(div_up(keys, range));
    float* parts = a.partial ? a.partial + pair * most * stride : s.own;
    const int r0 = a.partial ? int(u % most) : 0, r1 = a.partial ? r0 + 1 : ranges;
    if (r0 >= ranges) continue;
    for (int r = r0; r < r1; ++r) {
      const std::int64_t k0 = r * range, k1 = k0 + range < keys ? k0 + range : keys;
      range_unit(a, *seg.state, row, kv_head, k0, k1, range_sums(a, parts + r * stride), s);
    }
    if (a.partial) {
      if (__atomic_add_fetch(a.finished + pair, 1, __ATOMIC_ACQ_REL) < ranges) continue;
      __atomic_store_n(a.finished + pair, 0, __ATOMIC_RELAXED);
    }
    join_ranges(a, row, kv_head, parts, stride, ranges, s.weight);
  }
}

}  // namespace lily::ops::LILY_ISA
