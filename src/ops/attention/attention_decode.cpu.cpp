// Decode attention. A unit is one row, one KV head and one range of keys: it reads each K and V row of the range once for all
// the query heads that share it, and leaves maximum, sum and weighted values. Whoever finishes a row's last range joins the
// ranges, in their order. How the keys are cut depends on the row's position alone.
#include <string.h>

#include "ops/attention/attention_tile.h"

namespace lily::ops::LILY_ISA {

constexpr int kKeyBlock = 32;  // keys between two looks at the maximum; aligned to absolute positions
constexpr int kPairVectors = 2 * kTileHeads / kLanes;  // a tile's scores of two keys: [2][kTileHeads] as whole vectors
static_assert(kKvBlockTokens % kKeyBlock == 0 && kKeyBlock % 2 == 0);
static_assert(kPairVectors == 1 || kPairVectors % 2 == 0);

/// Result of one range for the padded query heads of a KV head; o is in the cache's channel order (KvBf16: interleaved).
struct RangePart {
  float *m, *l, *o;  // [heads8], [heads8], [heads8][head_dim]
};

LILY_SIMD int padded_heads(const AttentionArgs& a) { return (a.heads / a.kv_heads + 7) / 8 * 8; }
LILY_SIMD RangePart range_part(const AttentionArgs& a, float* p) {
  const int heads8 = padded_heads(a);
  return {p + std::int64_t(heads8) * a.head_dim, p + std::int64_t(heads8) * (a.head_dim + 1), p};
}

/// q of a tile's heads, scaled, in the cache's channel order; heads beyond `heads` are zero.
template <class Kv>
LILY_SIMD void arrange_q(const float* q, int heads, int dim, float scale, float* out) {
  for (int h = 0; h < kTileHeads; ++h, out += dim) {
    for (int c = 0; c < dim; c += kPair) {
      for (int i = 0; i < kPair; ++i) {
        const int from = Kv::interleaved ? (i % kLanes) * 2 + i / kLanes : i;
        out[c + i] = h < heads ? q[std::int64_t(h) * dim + c + from] * scale : 0.0f;
      }
    }
  }
}

/// The scores of two keys (the second may be the first again): s[key][head].
template <class Kv>
LILY_SIMD void score_two(const typename Kv::Type* k0, const typename Kv::Type* k1, const float* q, int dim, float* s) {
  F32 sums[2 * kTileHeads];
  for (int i = 0; i < 2 * kTileHeads; ++i) sums[i] = zero();
  for (int c = 0; c < dim; c += kPair) {
    F32 a0, b0, a1, b1;
    Kv::load_pair(k0 + c, &a0, &b0);
    Kv::load_pair(k1 + c, &a1, &b1);
    for (int h = 0; h < kTileHeads; ++h) {
      const F32 qa = load(q + std::int64_t(h) * dim + c), qb = load(q + std::int64_t(h) * dim + c + kLanes);
      sums[h] = fma(a0, qa, sums[h]);
      sums[kTileHeads + h] = fma(a1, qa, sums[kTileHeads + h]);
      sums[h] = fma(b0, qb, sums[h]);
      sums[kTileHeads + h] = fma(b1, qb, sums[kTileHeads + h]);
    }
  }
  for (int w = 0; w < kPairVectors; ++w) store(s + w * kLanes, sum_each(sums + w * kLanes));
}

/// Folds the two keys' halves of a tile: x[head of key 0] with x[head of key 1], the result in both.
template <class F>
LILY_SIMD void fold_keys(F32* x, F f) {
  if (kPairVectors == 1) {
    x[0] = f(x[0], swap_halves(x[0]));
    return;
  }
  for (int w = 0; w < kPairVectors / 2; ++w) x[w] = x[w + kPairVectors / 2] = f(x[w], x[w + kPairVectors / 2]);
}

/// Keys [begin, end) for one tile of query heads; q as arrange_q leaves it.
template <class Kv>
static void range_tile(const AttentionArgs& a, const SequenceState& state, int head, std::int64_t begin, std::int64_t end,
                       const float* q, float* m_out, float* l_out, float* o) {
  const int dim = a.head_dim;
  alignas(64) float p[kKeyBlock * kTileHeads], keep_heads[2 * kTileHeads];  // p: [key][head]
  F32 m[kPairVectors], l[kPairVectors];
  for (int w = 0; w < kPairVectors; ++w) {
    m[w] = set1(-__builtin_inff());
    l[w] = zero();
  }
  memset(o, 0, std::size_t(kTileHeads) * dim * sizeof(float));
  for (std::int64_t at = begin; at < end; at += kKeyBlock) {
    const int n = end - at < kKeyBlock ? int(end - at) : kKeyBlock;
    const typename Kv::Type* k = kv_rows<Kv>(a, state, false, head, at);
    const typename Kv::Type* v = kv_rows<Kv>(a, state, true, head, at);
    F32 most[kPairVectors];
    for (int w = 0; w < kPairVectors; ++w) most[w] = m[w];
    for (int key = 0; key < n; key += 2) {
      const bool two = key + 1 < n;
      const typename Kv::Type* row = k + std::int64_t(key) * dim;
      for (int c = 0; c < 2 * dim; c += 64 / int(sizeof(typename Kv::Type))) __builtin_prefetch(v + std::int64_t(key) * dim + c);
      score_two<Kv>(row, two ? row + dim : row, q, dim, p + key * kTileHeads);
      for (int w = 0; w < kPairVectors; ++w) most[w] = max(load(p + key * kTileHeads + w * kLanes), most[w]);
    }
    fold_keys(most, [](F32 x, F32 y) __attribute__((always_inline)) { return max(x, y); });
    for (int w = 0; w < kPairVectors; ++w) {
      const F32 keep = exp(m[w] - most[w]);
      store(keep_heads + w * kLanes, keep);
      m[w] = most[w];
      l[w] = l[w] * keep;
    }
    for (int key = 0; key < n; key += 2) {
      for (int w = 0; w < kPairVectors; ++w) {
        F32 e = exp(load(p + key * kTileHeads + w * kLanes) - m[w]);
        if (key + 1 == n) {  // the second key is not there
          const int lanes = kTileHeads - w * kLanes;
          if (lanes < kLanes) e = keep_n(e, lanes < 0 ? 0 : lanes, zero());
        }
        store(p + key * kTileHeads + w * kLanes, e);
        l[w] = l[w] + e;
      }
    }
    const bool more = at + kKeyBlock < end;
    const char* next = reinterpret_cast<const char*>(more ? kv_rows<Kv>(a, state, false, head, at + kKeyBlock) : k);
    for (int c = 0; c < dim; c += kPair) {
      F32 sum[kTileHeads][2];
      for (int h = 0; h < kTileHeads; ++h) {
        const F32 keep = set1(keep_heads[h]);
        sum[h][0] = load(o + std::int64_t(h) * dim + c) * keep;
        sum[h][1] = load(o + std::int64_t(h) * dim + c + kLanes) * keep;
      }
      for (int key = 0; key < n; ++key) {
        F32 x, y;
        Kv::load_pair(v + std::int64_t(key) * dim + c, &x, &y);
        for (std::size_t b = 0; b < kPair * sizeof(typename Kv::Type); b += 64, next += 64) __builtin_prefetch(next);
        for (int h = 0; h < kTileHeads; ++h) {
          const F32 w = set1(p[key * kTileHeads + h]);
          sum[h][0] = fma(w, x, sum[h][0]);
          sum[h][1] = fma(w, y, sum[h][1]);
        }
      }
      for (int h = 0; h < kTileHeads; ++h) {
        store(o + std::int64_t(h) * dim + c, sum[h][0]);
        store(o + std::int64_t(h) * dim + c + kLanes, sum[h][1]);
      }
    }
  }
  fold_keys(l, [](F32 x, F32 y) __attribute__((always_inline)) { return x + y; });
  for (int w = 0; w < kPairVectors; ++w) {
    const int lanes = kTileHeads - w * kLanes;
    if (lanes <= 0) break;
    store_part(m_out + w * kLanes, m[w], lanes < kLanes ? lanes : kLanes);
    store_part(l_out + w * kLanes, l[w], lanes < kLanes ? lanes : kLanes);
  }
}

template <class Kv>
static void range_unit(const AttentionArgs& a, const SequenceState& state, int row, int head, std::int64_t begin,
                       std::int64_t end, const RangePart& part, float* q_scratch) {
  const int share = a.heads / a.kv_heads, dim = a.head_dim;
  const float scale = rsqrt(float(dim));
  for (int h = 0; h < share; h += kTileHeads) {
    const float* q = a.q + (std::int64_t(row) * a.heads + std::int64_t(head) * share + h) * dim;
    arrange_q<Kv>(q, share - h < kTileHeads ? share - h : kTileHeads, dim, scale, q_scratch);
    range_tile<Kv>(a, state, head, begin, end, q_scratch, part.m + h, part.l + h, part.o + std::int64_t(h) * dim);
  }
}

/// o of one row's query heads from its ranges, which lie `stride` floats apart.
static void join_ranges(const AttentionArgs& a, int row, int head, float* parts, std::int64_t stride, int ranges,
                        bool interleaved, float* line) {
  const int share = a.heads / a.kv_heads, dim = a.head_dim;
  for (int h = 0; h < share; ++h) {
    float most = -__builtin_inff(), total = 0;
    for (int i = 0; i < ranges; ++i) {
      const float m = range_part(a, parts + i * stride).m[h];
      if (m > most) most = m;
    }
    memset(line, 0, std::size_t(dim) * sizeof(float));
    for (int i = 0; i < ranges; ++i) {
      const RangePart part = range_part(a, parts + i * stride);
      const float w = exp1(part.m[h] - most);
      total += w * part.l[h];
      const float* from = part.o + std::int64_t(h) * dim;
      for (int c = 0; c < dim; c += kLanes) store(line + c, fma(set1(w), load(from + c), load(line + c)));
    }
    for (int c = 0; c < dim; c += kLanes) store(line + c, load(line + c) / set1(total));
    float* o = a.o + (std::int64_t(row) * a.heads + std::int64_t(head) * share + h) * dim;
    if (!interleaved) {
      memcpy(o, line, std::size_t(dim) * sizeof(float));
      continue;
    }
    for (int c = 0; c < dim; c += kPair) {
      for (int i = 0; i < kLanes; ++i) {
        o[c + 2 * i] = line[c + i];
        o[c + 2 * i + 1] = line[c + kLanes + i];
      }
    }
  }
}

std::int64_t attention_decode_units(const AttentionArgs& a) {
  return a.partial ? std::int64_t(a.rows) * a.kv_heads * attention_ranges(a) : std::int64_t(a.rows) * a.kv_heads;
}

void attention_decode_run(const AttentionArgs& a, std::int64_t begin, std::int64_t end, CpuScratch& scratch) {
  const std::int64_t most = attention_ranges(a), stride = attention_partial_stride(a);
  float* q_scratch = reinterpret_cast<float*>(scratch.data);         // [kTileHeads][head_dim]
  float* line = q_scratch + std::int64_t(kTileHeads) * a.head_dim;   // [head_dim]
  float* own = line + a.head_dim;                                    // [most][stride], without a.partial
  for (std::int64_t u = begin; u < end; ++u) {
    const std::int64_t pair = a.partial ? u / most : u;  // (row, KV head)
    const int row = int(pair / a.kv_heads), head = int(pair % a.kv_heads);
    const SegmentRows& seg = segment_of(a.segments.data(), row);
    const SequenceState& state = *seg.state;
    const std::int64_t keys = seg.position + (row - seg.row) + 1, range = attention_range(keys);
    const int ranges = int(div_up(keys, range));
    const bool bf16 = state.layout.kv_type == DType::bf16;
    float* parts = a.partial ? a.partial + pair * most * stride : own;
    const int r0 = a.partial ? int(u % most) : 0, r1 = a.partial ? r0 + 1 : ranges;
    if (r0 >= ranges) continue;
    for (int r = r0; r < r1; ++r) {
      const std::int64_t k0 = r * range, k1 = k0 + range < keys ? k0 + range : keys;
      const RangePart part = range_part(a, parts + r * stride);
      if (bf16) range_unit<KvBf16>(a, state, row, head, k0, k1, part, q_scratch);
      else range_unit<KvF32>(a, state, row, head, k0, k1, part, q_scratch);
    }
    if (a.partial) {
      if (__atomic_add_fetch(a.finished + pair, 1, __ATOMIC_ACQ_REL) < ranges) continue;
      __atomic_store_n(a.finished + pair, 0, __ATOMIC_RELAXED);
    }
    join_ranges(a, row, head, parts, stride, ranges, bf16, line);
  }
}

}  // namespace lily::ops::LILY_ISA
