// Attention on the CPU. Both forms walk the keys in blocks of kKeyBlock aligned to absolute positions with the running maximum
// and sum of the online softmax; a row is never mixed with another.
//   prefill: a block of keys is widened (K transposed) once for many rows; both products are the same small matrix product.
//   decode (attention_decode.cpu.cpp): every K and V row is read once, straight from the cache, for all its query heads.
#include <string.h>

#include "ops/attention/attention_tile.h"

namespace lily::ops::LILY_ISA {

std::int64_t attention_decode_units(const AttentionArgs& a);
void attention_decode_run(const AttentionArgs& a, std::int64_t begin, std::int64_t end, CpuScratch& scratch);

constexpr int kPrefillRows = 32;  // rows of a unit, at most

/// Sizes and scratch of one unit: up to `rows` rows and the `share` query heads of one KV head.
struct PrefillTile {
  int rows, share, padded;  // padded: head_dim in whole pairs
  float *kt, *v, *p;        // [head_dim][kKeyBlock], [kKeyBlock][padded], [kTileHeads][kKeyBlock]
  float *m, *l, *o;         // [rows][share], …, [rows][share][padded]
};

LILY_SIMD int prefill_rows(const AttentionArgs& a) {
  const std::int64_t padded = div_up(a.head_dim, kPair) * kPair;
  const std::int64_t fit = (std::int64_t(kCpuScratchBytes) / 4 - 2 * kKeyBlock * (padded + kPair) - 1024) /
                           (std::int64_t(a.heads / a.kv_heads) * (padded + 2));
  return fit < 1 ? 1 : fit < kPrefillRows ? int(fit) : kPrefillRows;
}

LILY_SIMD PrefillTile prefill_tile(const AttentionArgs& a, CpuScratch& scratch) {
  PrefillTile t;
  t.rows = prefill_rows(a);
  t.share = a.heads / a.kv_heads;
  t.padded = int(div_up(a.head_dim, kPair) * kPair);
  t.kt = reinterpret_cast<float*>(scratch.data);
  t.v = t.kt + std::int64_t(t.padded) * kKeyBlock;
  t.p = t.v + std::int64_t(kKeyBlock) * t.padded;
  t.o = t.p + kTileHeads * kKeyBlock;
  t.m = t.o + std::int64_t(t.rows) * t.share * t.padded;
  t.l = t.m + t.rows * t.share;
  return t;
}

/// Widens `n` keys from `position` on: K transposed, V with rows padded. Keys beyond n become zero.
template <class Kv>
LILY_SIMD void widen_keys(const AttentionArgs& a, const SequenceState& state, int head, std::int64_t position, int n,
                          const PrefillTile& t) {
  const int dim = a.head_dim;
  const typename Kv::Type* k = kv_rows<Kv>(a, state, false, head, position);
  const typename Kv::Type* v = kv_rows<Kv>(a, state, true, head, position);
  int d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    for (int key = 0; key < kKeyBlock; key += kLanes) {
      F32 r[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        r[i] = key + i < n ? Kv::load_vector(k + std::int64_t(key + i) * dim + d) : zero();
      }
      transpose(r);
      for (int i = 0; i < kLanes; ++i) store(t.kt + std::int64_t(d + i) * kKeyBlock + key, r[i]);
    }
  }
  for (; d < dim; ++d) {
    for (int key = 0; key < kKeyBlock; ++key) {
      t.kt[std::int64_t(d) * kKeyBlock + key] = key < n ? Kv::scalar(k + std::int64_t(key) * dim + d) : 0.0f;
    }
  }
  for (int key = 0; key < n; ++key) {
    float* out = t.v + std::int64_t(key) * t.padded;
    const typename Kv::Type* in = v + std::int64_t(key) * dim;
    for (d = 0; d + kLanes <= dim; d += kLanes) store(out + d, Kv::load_vector(in + d));
    for (; d < dim; ++d) out[d] = Kv::scalar(in + d);
    for (; d < t.padded; ++d) out[d] = 0;
  }
}

/// c[q][0 … kPair) += Σ_i a[q][i]·b[i][0 … kPair), i < n, in order.
template <int Q>
LILY_SIMD void product_tile(const float* a, std::int64_t a_stride, int n, const float* b, std::int64_t b_stride, F32 (*c)[2]) {
  for (int i = 0; i < n; ++i, b += b_stride) {
    const F32 b0 = load(b), b1 = load(b + kLanes);
    for (int q = 0; q < Q; ++q) {
      const F32 x = set1(a[q * a_stride + i]);
      c[q][0] = fma(x, b0, c[q][0]);
      c[q][1] = fma(x, b1, c[q][1]);
    }
  }
}

/// One block of n keys for Q query heads of one row: heads h … h + Q of the unit's row r.
template <int Q>
static void prefill_step(const AttentionArgs& a, const PrefillTile& t, const float* q, int r, int h, int n, float scale) {
  F32 c[Q][2];
  for (int key = 0; key < kKeyBlock; key += kPair) {
    for (int i = 0; i < Q; ++i) c[i][0] = c[i][1] = zero();
    product_tile<Q>(q, a.head_dim, a.head_dim, t.kt + key, kKeyBlock, c);
    for (int i = 0; i < Q; ++i) {
      store(t.p + i * kKeyBlock + key, c[i][0]);
      store(t.p + i * kKeyBlock + key + kLanes, c[i][1]);
    }
  }
  float *m = t.m + r * t.share + h, *l = t.l + r * t.share + h;
  float* o = t.o + (std::int64_t(r) * t.share + h) * t.padded;
  F32 keep[Q];
  for (int i = 0; i < Q; ++i) {
    float* p = t.p + i * kKeyBlock;
    F32 s[kKeyBlock / kLanes], most = set1(-__builtin_inff());
    for (int j = 0; j < kKeyBlock / kLanes; ++j) {
      s[j] = load(p + j * kLanes) * set1(scale);
      const int lanes = n - j * kLanes;
      if (lanes < kLanes) s[j] = keep_n(s[j], lanes < 0 ? 0 : lanes, set1(-__builtin_inff()));
      most = max(most, s[j]);
    }
    const float before = m[i], block = max_lane(most), now = before > block ? before : block;
    m[i] = now;
    keep[i] = exp(set1(before - now));
    F32 total = zero();
    for (int j = 0; j < kKeyBlock / kLanes; ++j) {
      s[j] = exp(s[j] - set1(now));
      store(p + j * kLanes, s[j]);
      total = total + s[j];
    }
    l[i] = l[i] * first(keep[i]) + sum(total);
  }
  for (int d = 0; d < t.padded; d += kPair) {
    for (int i = 0; i < Q; ++i) {
      c[i][0] = load(o + std::int64_t(i) * t.padded + d) * keep[i];
      c[i][1] = load(o + std::int64_t(i) * t.padded + d + kLanes) * keep[i];
    }
    product_tile<Q>(t.p, kKeyBlock, n, t.v + d, t.padded, c);
    for (int i = 0; i < Q; ++i) {
      store(o + std::int64_t(i) * t.padded + d, c[i][0]);
      store(o + std::int64_t(i) * t.padded + d + kLanes, c[i][1]);
    }
  }
}

/// Rows [row, row + rows) of the pass, which begin at `position`, against one KV head.
template <class Kv>
static void prefill_unit(const AttentionArgs& a, const SequenceState& state, int row, int rows, std::int64_t position,
                         int head, CpuScratch& scratch) {
  const PrefillTile t = prefill_tile(a, scratch);
  const float scale = rsqrt(float(a.head_dim));
  for (int i = 0; i < rows * t.share; ++i) {
    t.m[i] = -__builtin_inff();
    t.l[i] = 0;
  }
  memset(t.o, 0, std::size_t(rows) * t.share * t.padded * sizeof(float));
  const std::int64_t keys = position + rows;
  for (std::int64_t k0 = 0; k0 < keys; k0 += kKeyBlock) {
    const int have = keys - k0 < kKeyBlock ? int(keys - k0) : kKeyBlock;
    widen_keys<Kv>(a, state, head, k0, have, t);
    for (int r = k0 > position ? int(k0 - position) : 0; r < rows; ++r) {
      const std::int64_t own = position + r + 1 - k0;  // keys of the block that this row sees: at least one
      const int n = own < kKeyBlock ? int(own) : kKeyBlock;
      const float* q = a.q + (std::int64_t(row + r) * a.heads + std::int64_t(head) * t.share) * a.head_dim;
      int h = 0;
      for (; h + kTileHeads <= t.share; h += kTileHeads) {
        prefill_step<kTileHeads>(a, t, q + std::int64_t(h) * a.head_dim, r, h, n, scale);
      }
      for (; h + 4 <= t.share; h += 4) prefill_step<4>(a, t, q + std::int64_t(h) * a.head_dim, r, h, n, scale);
      for (; h < t.share; ++h) prefill_step<1>(a, t, q + std::int64_t(h) * a.head_dim, r, h, n, scale);
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int h = 0; h < t.share; ++h) {
      const F32 l = set1(t.l[r * t.share + h]);
      const float* from = t.o + (std::int64_t(r) * t.share + h) * t.padded;
      float* o = a.o + (std::int64_t(row + r) * a.heads + std::int64_t(head) * t.share + h) * a.head_dim;
      LILY_FOR_LANES(d, n, a.head_dim) store_part(o + d, load(from + d) / l, n);
    }
  }
}

/// Decode has its own form unless a head does not fill whole pairs of vectors.
LILY_SIMD bool decodes(const AttentionArgs& a) { return a.decode && a.head_dim % kPair == 0; }

std::int64_t attention_units(const AttentionArgs& a) {  // prefill: a unit is a block of rows of one segment and one KV head
  if (decodes(a)) return attention_decode_units(a);
  std::int64_t blocks = 0;
  for (std::size_t s = 0; s < a.segments.size(); ++s) blocks += div_up(a.segments.data()[s].rows, prefill_rows(a));
  return blocks * a.kv_heads;
}

void attention_run(const AttentionArgs& a, std::int64_t begin, std::int64_t end, CpuScratch& scratch) {
  if (decodes(a)) return attention_decode_run(a, begin, end, scratch);
  const std::int64_t total = attention_units(a), tile = prefill_rows(a);
  for (std::int64_t u = begin; u < end; ++u) {
    std::int64_t block = (total - 1 - u) / a.kv_heads;  // the last rows see the most keys: they go first
    const int head = int((total - 1 - u) % a.kv_heads);
    const SegmentRows* seg = a.segments.data();
    for (; block >= div_up(seg->rows, tile); ++seg) block -= div_up(seg->rows, tile);
    const int r0 = int(block * tile), rows = seg->rows - r0 < tile ? seg->rows - r0 : int(tile);
    const std::int64_t position = seg->position + r0;
    if (seg->state->layout.kv_type == DType::bf16) {
      prefill_unit<KvBf16>(a, *seg->state, seg->row + r0, rows, position, head, scratch);
    } else {
      prefill_unit<KvF32>(a, *seg->state, seg->row + r0, rows, position, head, scratch);
    }
  }
}

}  // namespace lily::ops::LILY_ISA
