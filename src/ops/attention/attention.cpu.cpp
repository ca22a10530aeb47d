// Attention on the CPU. Both forms walk the keys in blocks aligned to absolute positions with the running maximum
// and sum of the online softmax; a row is never mixed with another.
//   prefill: a block of keys is widened (K transposed) once for many rows; both products are the same small matrix product.
//   decode (attention_decode.cpu.cpp): every K and V row is read once, straight from the cache, for all its query heads.
#include <string.h>

#include "ops/attention/attention_tile.h"

namespace lily::ops::LILY_ISA {

std::int64_t attention_decode_units(const AttentionArgs& a);
void attention_decode_run(const AttentionArgs& a, std::int64_t begin, std::int64_t end, CpuScratch& scratch);

constexpr int kPrefillRows = 32;  // rows of a unit, at most
constexpr int kPrefillKeys = 64;  // keys widened at once
static_assert(kKvBlockTokens % kPrefillKeys == 0 && kPrefillKeys % kPair == 0);

/// Sizes and scratch of one unit: up to `rows` rows and the `share` query heads of one KV head.
struct PrefillTile {
  int rows, share, padded;  // padded: head_dim in whole pairs
  float* k;                 // [kPrefillKeys / kPair][padded][kPair]: K transposed, a panel of kPair keys after another
  float* v;                 // [padded / kPair][kPrefillKeys][kPair]: a panel of kPair channels after another
  float* p;                 // [kTileHeads][kPrefillKeys]: scores, then their exponentials
  float *m, *l, *o;         // [rows][share], …, [rows][share][padded]
};

LILY_SIMD int prefill_rows(const AttentionArgs& a) {
  const std::int64_t padded = div_up(a.head_dim, kPair) * kPair;
  const std::int64_t fit = (std::int64_t(kCpuScratchBytes) / 4 - 2 * kPrefillKeys * padded - kTileHeads * kPrefillKeys) /
                           (std::int64_t(a.heads / a.kv_heads) * (padded + 2));
  return fit < 1 ? 1 : fit < kPrefillRows ? int(fit) : kPrefillRows;
}

LILY_SIMD PrefillTile prefill_tile(const AttentionArgs& a, CpuScratch& scratch) {
  PrefillTile t;
  t.rows = prefill_rows(a);
  t.share = a.heads / a.kv_heads;
  t.padded = int(div_up(a.head_dim, kPair) * kPair);
  t.k = reinterpret_cast<float*>(scratch.data);
  t.v = t.k + std::int64_t(t.padded) * kPrefillKeys;
  t.p = t.v + std::int64_t(t.padded) * kPrefillKeys;
  t.o = t.p + kTileHeads * kPrefillKeys;
  t.m = t.o + std::int64_t(t.rows) * t.share * t.padded;
  t.l = t.m + t.rows * t.share;
  return t;
}

/// Widens `n` keys from `position` on into the tile's k and v; K of keys beyond n becomes zero.
template <class Kv>
LILY_SIMD void widen_keys(const AttentionArgs& a, const SequenceState& state, int head, std::int64_t position, int n,
                          const PrefillTile& t) {
  const int dim = a.head_dim;
  const typename Kv::Type* k = kv_rows<Kv>(a, state, false, head, position);
  const typename Kv::Type* v = kv_rows<Kv>(a, state, true, head, position);
  for (int panel = 0; panel < n; panel += kPair) {
    float* out = t.k + std::int64_t(panel) * t.padded;
    int d = 0;
    for (; d + kLanes <= dim; d += kLanes) {
      for (int key = 0; key < kPair; key += kLanes) {
        F32 r[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          const int from = panel + key + i;
          r[i] = from < n ? Kv::load_vector(k + std::int64_t(from) * dim + d) : zero();
        }
        transpose(r);
        for (int i = 0; i < kLanes; ++i) store(out + (d + i) * kPair + key, r[i]);
      }
    }
    for (; d < dim; ++d) {
      for (int key = 0; key < kPair; ++key) {
        out[d * kPair + key] = panel + key < n ? Kv::scalar(k + std::int64_t(panel + key) * dim + d) : 0.0f;
      }
    }
  }
  for (int key = 0; key < n; ++key) {
    const typename Kv::Type* in = v + std::int64_t(key) * dim;
    int d = 0;
    for (; d + kLanes <= dim; d += kLanes) {
      store(t.v + (d / kPair * kPrefillKeys + key) * kPair + d % kPair, Kv::load_vector(in + d));
    }
    for (; d < t.padded; ++d) {
      t.v[(d / kPair * kPrefillKeys + key) * kPair + d % kPair] = d < dim ? Kv::scalar(in + d) : 0.0f;
    }
  }
}

/// c[q][0 … kPair) += Σ_i a[q][i]·b[i][0 … kPair), i < n, in order.
template <int Q>
LILY_SIMD void product_tile(const float* a, std::int64_t a_stride, int n, const float* b, F32 (*c)[2]) {
  for (int i = 0; i < n; ++i, b += kPair) {
    const F32 b0 = load(b), b1 = load(b + kLanes);
    for (int q = 0; q < Q; ++q) {
      const F32 x = set1(a[q * a_stride + i]);
      c[q][0] = fma(x, b0, c[q][0]);
      c[q][1] = fma(x, b1, c[q][1]);
    }
  }
}

/// p[q][0 … kPrefillKeys) from scores to exponentials; keep[q]: what earlier keys' sums are multiplied with.
template <int Q>
LILY_SIMD void softmax_step(float* p, int n, float scale, float* m, float* l, float* keep) {
  float now[Q];
  const int vectors = (n + kPair - 1) / kPair * 2;
  for (int i = 0; i < Q; ++i) {
    F32 most = set1(-__builtin_inff());
    for (int j = 0; j < vectors; ++j) {
      F32 s = load(p + i * kPrefillKeys + j * kLanes) * set1(scale);
      const int lanes = n - j * kLanes;
      if (lanes < kLanes) s = keep_n(s, lanes < 0 ? 0 : lanes, set1(-__builtin_inff()));
      store(p + i * kPrefillKeys + j * kLanes, s);
      most = max(most, s);
    }
    now[i] = max_lane(most);
  }
  for (int i = 0; i < Q; i += kLanes) {
    const int lanes = Q - i < kLanes ? Q - i : kLanes;
    const F32 before = load_n(m + i, lanes), after = max(before, load_n(now + i, lanes));
    store_n(m + i, after, lanes);
    store_n(keep + i, exp(before - after), lanes);
  }
  for (int i = 0; i < Q; ++i) {
    F32 total = zero();
    for (int j = 0; j < vectors; ++j) {
      const F32 e = exp(load(p + i * kPrefillKeys + j * kLanes) - set1(m[i]));
      store(p + i * kPrefillKeys + j * kLanes, e);
      total = total + e;
    }
    l[i] = l[i] * keep[i] + sum(total);
  }
}

/// One block of n keys for Q query heads of one row: heads h … h + Q of the unit's row r.
template <int Q>
static void prefill_step(const AttentionArgs& a, const PrefillTile& tile, const float* q, int r, int h, int n, float scale) {
  const PrefillTile t = tile;  // a copy that no store can change
  const std::int64_t dim = a.head_dim;
  F32 c[Q][2];
  for (int key = 0; key < n; key += kPair) {
    for (int i = 0; i < Q; ++i) c[i][0] = c[i][1] = zero();
    product_tile<Q>(q, dim, int(dim), t.k + std::int64_t(key) * t.padded, c);
    for (int i = 0; i < Q; ++i) {
      store(t.p + i * kPrefillKeys + key, c[i][0]);
      store(t.p + i * kPrefillKeys + key + kLanes, c[i][1]);
    }
  }
  float keep[Q];
  softmax_step<Q>(t.p, n, scale, t.m + r * t.share + h, t.l + r * t.share + h, keep);
  float* o = t.o + (std::int64_t(r) * t.share + h) * t.padded;
  for (int d = 0; d < t.padded; d += kPair) {
    for (int i = 0; i < Q; ++i) {
      c[i][0] = load(o + std::int64_t(i) * t.padded + d) * set1(keep[i]);
      c[i][1] = load(o + std::int64_t(i) * t.padded + d + kLanes) * set1(keep[i]);
    }
    product_tile<Q>(t.p, kPrefillKeys, n, t.v + std::int64_t(d) * kPrefillKeys, c);
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
  for (std::int64_t k0 = 0; k0 < keys; k0 += kPrefillKeys) {
    const int have = keys - k0 < kPrefillKeys ? int(keys - k0) : kPrefillKeys;
    widen_keys<Kv>(a, state, head, k0, have, t);
    for (int r = k0 > position ? int(k0 - position) : 0; r < rows; ++r) {
      const std::int64_t own = position + r + 1 - k0;  // keys of the block that this row sees: at least one
      const int n = own < kPrefillKeys ? int(own) : kPrefillKeys;
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
