// The gated delta rule, token by token. With d = exp(g) and the state S before a token,
//   δ = beta·(v − d·Sᵀk)        o = d·Sᵀq + (k·q)·δ        S ← d·S + k ⊗ δ,
// so one walk over S both brings it up to date with the token before and makes Sᵀk and Sᵀq for this one: S is loaded and stored
// once a token. Every column of S is independent; a column's sums run over k in a fixed order, and S is rounded to float32
// after every token, so the bits depend neither on the blocks nor on where a prompt is cut into passes.
#include <string.h>

#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

constexpr int kScanVectors = kLanes == 16 ? 2 : kLanes == 8 ? 4 : 8;
constexpr int kScanColumns = kScanVectors * kLanes;   // 32: columns that are walked together
constexpr int kScanSums = kLanes == 16 ? 2 : 1;  // running sums a column (k even, k odd): enough chains to hide an fma's latency
constexpr int kScanStreamRows = 8;  // segments up to this many tokens work on S where it lies, longer ones on a copy
static_assert(kScanColumns == 32);

/// A block of columns of one head's S and what a token needs of it.
struct ScanBlock {
  float* s;             // [key_dim] rows of `columns` floats, stride floats apart
  std::int64_t stride;
  int key_dim, columns;  // columns is kScanColumns, or less in a narrow last block
};

/// Sᵀk and Sᵀq of the block. Update: first S ← decay·S + k_before ⊗ delta.
template <bool Update, bool Whole>
LILY_SIMD void scan_walk(const ScanBlock& b, float decay, const float* k_before, const F32* delta, const float* k,
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

/// S ← decay·S + k ⊗ delta, from b into `to`.
template <bool Whole>
LILY_SIMD void scan_update(const ScanBlock& b, float decay, const float* k, const F32* delta, float* to,
                           std::int64_t to_stride) {
  const F32 d = set1(decay);
  for (int i = 0; i < b.key_dim; ++i) {
    for (int v = 0; v < kScanVectors; ++v) {
      const int n = Whole ? kLanes : b.columns - v * kLanes;
      if (!Whole && n <= 0) break;
      const int lanes = n < kLanes ? n : kLanes;
      const F32 x = fma(set1(k[i]), delta[v], d * load_part(b.s + i * b.stride + v * kLanes, lanes));
      store_part(to + i * to_stride + v * kLanes, x, lanes);
    }
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

/// All tokens of one segment over one block of columns, which begins at column c0 of value head h.
template <bool Whole>
static void scan_block(const GdnScanArgs& a, const SegmentRows& seg, int h, int c0, int columns, CpuScratch& scratch) {
  const int key_head = h / (a.value_heads / a.key_heads), key_dim = a.key_dim;
  float* state = seg.state->recurrent.recurrent.data() + a.gdn_layer * seg.state->layout.recurrent_floats +
                 std::int64_t(h) * key_dim * a.value_dim + c0;
  ScanBlock b{state, a.value_dim, key_dim, columns};
  if (seg.rows > kScanStreamRows) {  // rows of S lie far apart and would collide in the cache: work on a dense copy
    b.s = reinterpret_cast<float*>(scratch.data);
    b.stride = kScanColumns;
    for (int i = 0; i < key_dim; ++i) {
      memcpy(b.s + std::int64_t(i) * b.stride, state + std::int64_t(i) * a.value_dim, std::size_t(columns) * sizeof(float));
    }
  }
  const float* token = a.qkv + std::int64_t(seg.row) * a.qkv_stride;
  const std::int64_t q_at = std::int64_t(key_head) * key_dim, k_at = q_at + std::int64_t(a.key_heads) * key_dim;
  const std::int64_t v_at = 2 * std::int64_t(a.key_heads) * key_dim + std::int64_t(h) * a.value_dim + c0;
  float* o = a.o + (std::int64_t(seg.row) * a.value_heads + h) * a.value_dim + c0;
  const float* k_before = nullptr;
  float decay_before = 0;
  F32 delta[kScanVectors], sk[kScanVectors], sq[kScanVectors];
  for (int v = 0; v < kScanVectors; ++v) delta[v] = zero();
  for (int t = 0; t < seg.rows; ++t, token += a.qkv_stride, o += std::int64_t(a.value_heads) * a.value_dim) {
    const float *q = token + q_at, *k = token + k_at, *value = token + v_at;
    if (t + 1 < seg.rows) {  // the next token's row lies pages away
      for (int i = 0; i < key_dim; i += 16) {
        __builtin_prefetch(q + a.qkv_stride + i);
        __builtin_prefetch(k + a.qkv_stride + i);
      }
      __builtin_prefetch(value + a.qkv_stride);
      __builtin_prefetch(value + a.qkv_stride + 16);
    }
    const std::int64_t gate = (std::int64_t(seg.row) + t) * a.value_heads + h;
    const float decay = exp1(a.g[gate]), kq = dot(k, q, key_dim);
    if (t == 0) scan_walk<false, Whole>(b, 0, nullptr, delta, k, q, sk, sq);
    else scan_walk<true, Whole>(b, decay_before, k_before, delta, k, q, sk, sq);
    const F32 d = set1(decay), beta = set1(a.beta[gate]), kqv = set1(kq);
    for (int v = 0; v < kScanVectors; ++v) {
      const int n = Whole ? kLanes : columns - v * kLanes;
      if (!Whole && n <= 0) break;
      const int lanes = n < kLanes ? n : kLanes;
      delta[v] = beta * fnma(d, sk[v], load_part(value + v * kLanes, lanes));
      store_part(o + v * kLanes, fma(kqv, delta[v], d * sq[v]), lanes);
    }
    k_before = k;
    decay_before = decay;
  }
  scan_update<Whole>(b, decay_before, k_before, delta, state, a.value_dim);
}

std::int64_t gdn_scan_units(const GdnScanArgs& a) {  // a unit is a block of columns of one head of one segment
  return std::int64_t(a.segments.size()) * a.value_heads * div_up(a.value_dim, kScanColumns);
}

void gdn_scan_run(const GdnScanArgs& a, std::int64_t begin, std::int64_t end, CpuScratch& scratch) {
  const std::int64_t blocks = div_up(a.value_dim, kScanColumns);
  for (std::int64_t u = begin; u < end; ++u) {
    const SegmentRows& seg = a.segments.data()[u / (blocks * a.value_heads)];
    const int h = int(u / blocks % a.value_heads), c0 = int(u % blocks) * kScanColumns;
    const int columns = a.value_dim - c0 < kScanColumns ? a.value_dim - c0 : int(kScanColumns);
    if (columns == kScanColumns) scan_block<true>(a, seg, h, c0, kScanColumns, scratch);
    else scan_block<false>(a, seg, h, c0, columns, scratch);
  }
}

}  // namespace lily::ops::LILY_ISA
