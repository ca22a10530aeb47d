// The gated delta rule, token by token. With d = exp(g) and the state S before a token,
//   δ = beta·(v − d·Sᵀk)        o = d·Sᵀq + (k·q)·δ        S ← d·S + k ⊗ δ,
// so one walk over S both brings it up to date with the token before and makes Sᵀk and Sᵀq for this one: S is loaded and stored
// once a token. Every column of S is independent; a column's sums run over k in a fixed order, and S is rounded to float32
// after every token, so the bits depend neither on the blocks nor on where a prompt is cut into passes.
#include <string.h>

#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

constexpr int kScanVectors = kLanes == 4 ? 8 : 4;
constexpr int kScanColumns = kScanVectors * kLanes;  // columns that are walked together: 64 with AVX-512, else 32
constexpr int kScanSums = kLanes == 16 ? 2 : 1;  // running sums a column (k even, k odd): enough chains to hide an fma's latency
static_assert(kScanColumns <= kMostScanColumns);  // tokens are gathered, kScanTokens at once, since rows of qkv lie pages apart and collide in caches
constexpr int kScanInPlace = 8;  // segments up to this many tokens work on S and qkv where they lie

/// A block of columns of one head's S.
struct ScanBlock {
  float* s;              // [key_dim] rows of `columns` floats, stride floats apart
  std::int64_t stride;
  int key_dim, columns;  // columns is kScanColumns, or less in a narrow last block
};

/// Some consecutive tokens as one head sees them; q, k, v and o at the block's first column.
struct ScanTokens {
  const float *q, *k, *v;
  std::int64_t qk_stride, v_stride;
  const float *decay, *beta, *kq;  // [n]: exp(g), beta, k·q
  float* o;
  std::int64_t o_stride;
  int n;
};

/// Sᵀk and Sᵀq of the block. Update: first S ← decay·S + k_before ⊗ delta.
template <bool Update, bool Whole>
LILY_SIMD void scan_walk(ScanBlock b, float decay, const float* k_before, const F32* delta, const float* k,
                         const float* q, F32* sk, F32* sq) {
  F32 k_sum[kScanSums][kScanVectors], q_sum[kScanSums][kScanVectors];
  for (int p = 0; p < kScanSums; ++p) {
    for (int v = 0; v < kScanVectors; ++v) k_sum[p][v] = q_sum[p][v] = zero();
  }
  const F32 d = set1(decay);
  auto row = [&](int i, int p) __attribute__((always_inline)) {
    float* s = b.s + i * b.stride;
    const F32 ki = set1(k[i]), qi = set1(q[i]);
    for (int v = 0; v < kScanVectors; ++v) {
      const int n = Whole ? kLanes : b.columns - v * kLanes;
      if (!Whole && n <= 0) break;
      F32 x = load_part(s + v * kLanes, n < kLanes ? n : kLanes);
      if (Update) {
        x = fma(set1(k_before[i]), delta[v], d * x);
        store_part(s + v * kLanes, x, n < kLanes ? n : kLanes);
      }
      k_sum[p][v] = fma(ki, x, k_sum[p][v]);
      q_sum[p][v] = fma(qi, x, q_sum[p][v]);
    }
  };
  int i = 0;
  for (; i + kScanSums <= b.key_dim; i += kScanSums) {
    for (int p = 0; p < kScanSums; ++p) row(i + p, p);
  }
  for (; i < b.key_dim; ++i) row(i, 0);
  for (int v = 0; v < kScanVectors; ++v) {
    sk[v] = kScanSums == 2 ? k_sum[0][v] + k_sum[kScanSums - 1][v] : k_sum[0][v];
    sq[v] = kScanSums == 2 ? q_sum[0][v] + q_sum[kScanSums - 1][v] : q_sum[0][v];
  }
}

/// S ← decay·S + k ⊗ delta.
template <bool Whole>
LILY_SIMD void scan_update(ScanBlock b, float decay, const float* k, const F32* delta) {
  const F32 d = set1(decay);
  for (int i = 0; i < b.key_dim; ++i) {
    for (int v = 0; v < kScanVectors; ++v) {
      const int n = Whole ? kLanes : b.columns - v * kLanes;
      if (!Whole && n <= 0) break;
      float* s = b.s + i * b.stride + v * kLanes;
      const int lanes = n < kLanes ? n : kLanes;
      store_part(s, fma(set1(k[i]), delta[v], d * load_part(s, lanes)), lanes);
    }
  }
}

/// The tokens over one block of columns, which is up to date before and after.
template <bool Whole>
static void scan_block(ScanBlock b, ScanTokens x) {  // by value: vector stores may alias anything that has an address
  F32 delta[kScanVectors], sk[kScanVectors], sq[kScanVectors];
  for (int v = 0; v < kScanVectors; ++v) delta[v] = zero();
  for (int t = 0; t < x.n; ++t) {
    const float *q = x.q + t * x.qk_stride, *k = x.k + t * x.qk_stride, *value = x.v + t * x.v_stride;
    float* o = x.o + t * x.o_stride;
    if (t == 0) scan_walk<false, Whole>(b, 0, nullptr, delta, k, q, sk, sq);
    else scan_walk<true, Whole>(b, x.decay[t - 1], k - x.qk_stride, delta, k, q, sk, sq);
    const F32 d = set1(x.decay[t]), beta = set1(x.beta[t]), kq = set1(x.kq[t]);
    for (int v = 0; v < kScanVectors; ++v) {
      const int n = Whole ? kLanes : b.columns - v * kLanes;
      if (!Whole && n <= 0) break;
      const int lanes = n < kLanes ? n : kLanes;
      delta[v] = beta * fnma(d, sk[v], load_part(value + v * kLanes, lanes));
      store_part(o + v * kLanes, fma(kq, delta[v], d * sq[v]), lanes);
    }
  }
  scan_update<Whole>(b, x.decay[x.n - 1], x.k + (x.n - 1) * x.qk_stride, delta);
}

LILY_SIMD void scan_blocks(float* s, std::int64_t stride, std::int64_t block_step, int key_dim, int value_dim, ScanTokens x) {
  for (int c0 = 0; c0 < value_dim; c0 += kScanColumns) {
    const int columns = value_dim - c0 < kScanColumns ? value_dim - c0 : kScanColumns;
    const ScanBlock b{s, stride, key_dim, columns};
    if (columns == kScanColumns) scan_block<true>(b, x);
    else scan_block<false>(b, x);
    s += block_step;
    x.v += kScanColumns;
    x.o += kScanColumns;
  }
}

LILY_SIMD float dot(const float* x, const float* y, int n) {
  F32 a = zero(), b = zero();
  int i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    a = fma(load(x + i), load(y + i), a);
    b = fma(load(x + i + kLanes), load(y + i + kLanes), b);
  }
  for (; i < n; i += kLanes) {
    const int lanes = n - i < kLanes ? n - i : kLanes;
    a = fma(load_part(x + i, lanes), load_part(y + i, lanes), a);
  }
  return sum(a + b);
}

/// S of one head as dense blocks of kScanColumns (`to_blocks`), or back.
LILY_SIMD void repack_state(float* state, float* blocks, int key_dim, int value_dim, bool to_blocks) {
  for (int c0 = 0; c0 < value_dim; c0 += kScanColumns, blocks += std::int64_t(key_dim) * kScanColumns) {
    const int columns = value_dim - c0 < kScanColumns ? value_dim - c0 : kScanColumns;
    for (int i = 0; i < key_dim; ++i) {
      float *a = state + std::int64_t(i) * value_dim + c0, *b = blocks + std::int64_t(i) * kScanColumns;
      if (to_blocks) memcpy(b, a, std::size_t(columns) * sizeof(float));
      else memcpy(a, b, std::size_t(columns) * sizeof(float));
    }
  }
}

std::int64_t gdn_scan_units(const GdnScanArgs& a) {  // a unit is one head of one segment, all its tokens
  return std::int64_t(a.segments.size()) * a.value_heads;
}

static void scan_head(const GdnScanArgs& a, const SegmentRows& seg, int h, CpuScratch& scratch) {
  const int key_dim = a.key_dim, value_dim = a.value_dim;
  const std::int64_t q_at = std::int64_t(h / (a.value_heads / a.key_heads)) * key_dim;
  const std::int64_t k_at = q_at + std::int64_t(a.key_heads) * key_dim;
  const std::int64_t v_at = 2 * std::int64_t(a.key_heads) * key_dim + std::int64_t(h) * value_dim;
  float* state = seg.state->recurrent.recurrent.data() + a.gdn_layer * seg.state->layout.recurrent_floats +
                 std::int64_t(h) * key_dim * value_dim;
  float* decay = reinterpret_cast<float*>(scratch.data);  // [kScanTokens] each
  float *beta = decay + kScanTokens, *kq = beta + kScanTokens;
  float* s = kq + kScanTokens;                            // blocks: [value_dim / kScanColumns][key_dim][kScanColumns]
  float* q = s + div_up(value_dim, kScanColumns) * kScanColumns * key_dim;  // [kScanTokens][key_dim]
  float* k = q + std::int64_t(kScanTokens) * key_dim;
  float* v = k + std::int64_t(kScanTokens) * key_dim;     // [kScanTokens][value_dim]
  const bool in_place = seg.rows <= kScanInPlace || !a.register_scan;
  const int step = a.register_scan ? kScanTokens : 1;
  if (!in_place) repack_state(state, s, key_dim, value_dim, true);
  for (int t0 = 0; t0 < seg.rows; t0 += step) {
    const int n = seg.rows - t0 < step ? seg.rows - t0 : step;
    const std::int64_t row0 = std::int64_t(seg.row) + t0;
    const float* token = a.qkv + row0 * a.qkv_stride;
    for (int t = 0; t < n; ++t, token += a.qkv_stride) {
      const std::int64_t gate = (row0 + t) * a.value_heads + h;
      decay[t] = exp1(a.g[gate]);
      beta[t] = a.beta[gate];
      kq[t] = dot(token + k_at, token + q_at, key_dim);
      if (in_place) continue;
      memcpy(q + std::int64_t(t) * key_dim, token + q_at, std::size_t(key_dim) * sizeof(float));
      memcpy(k + std::int64_t(t) * key_dim, token + k_at, std::size_t(key_dim) * sizeof(float));
      memcpy(v + std::int64_t(t) * value_dim, token + v_at, std::size_t(value_dim) * sizeof(float));
    }
    ScanTokens x{.q = q, .k = k, .v = v, .qk_stride = key_dim, .v_stride = value_dim, .decay = decay, .beta = beta, .kq = kq,
                 .o = a.o + (row0 * a.value_heads + h) * value_dim, .o_stride = std::int64_t(a.value_heads) * value_dim, .n = n};
    if (in_place) {
      token = a.qkv + row0 * a.qkv_stride;
      x.q = token + q_at;
      x.k = token + k_at;
      x.v = token + v_at;
      x.qk_stride = x.v_stride = a.qkv_stride;
      scan_blocks(state, value_dim, kScanColumns, key_dim, value_dim, x);
    } else {
      scan_blocks(s, kScanColumns, std::int64_t(key_dim) * kScanColumns, key_dim, value_dim, x);
    }
  }
  if (!in_place) repack_state(state, s, key_dim, value_dim, false);
}

void gdn_scan_run(const GdnScanArgs& a, std::int64_t begin, std::int64_t end, CpuScratch& scratch) {
  for (std::int64_t u = begin; u < end; ++u) {
    scan_head(a, a.segments.data()[u / a.value_heads], int(u % a.value_heads), scratch);
  }
}

}  // namespace lily::ops::LILY_ISA
