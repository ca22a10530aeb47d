// Products of a few quantised input rows with a matrix that is read once (decode).
//
// A step takes kByteLanes bytes of codes of a row. 4-bit codes are used as they lie: the low nibbles are even columns, the high
// ones odd columns, as the input is laid out (plan/quant_layout.h). Other codes are unpacked into scratch, one a byte in the order
// of the columns (8-bit ones lie so), and the input's halves are put together once. A lane sums 8 columns (4 with bytes) exactly,
// becomes a float, and is added by
//   acc = fma(float(sum), weight scale · input scale, acc)      (the product of the scales is made once for a row, not for each lane)
// to one running sum a lane, which starts with the biases' part: fma(bias, input sum, …), lane i over groups i, i + kLanes, ….
#include "ops/matmul/codes.h"

namespace lily::ops::LILY_ISA {

// Scales in scratch, with kLanes floats behind them that a vector load may touch.
LILY_SIMD std::int64_t padded(std::int64_t n) { return round_up(n, kLanes) + kLanes; }

constexpr int kTileRows = 4;  // weight rows of a tile, at most

// Columns under one weight scale and one input scale.
LILY_SIMD std::int64_t scale_group(const Matrix& w) { return w.group < kQuantGroup ? w.group : std::int64_t(kQuantGroup); }

LILY_SIMD bool uses_nibbles(const Matrix& w) { return w.bits == 4; }

void gemv_prepare(const InputRows& in, int m, const Matrix& w, GemvInput* out, Arena* arena) {
  const std::int64_t cols = w.cols, half = cols / 2;
  const bool nibbles = uses_nibbles(w), two = two_terms(in);
  *out = {m, two, {}, {}, {}};
  for (int i = 0; i < m; ++i) {
    const std::byte* row = quantized_row(in, i);
    const auto* scales = reinterpret_cast<const float*>(row + in.layout.scale_offset());
    const auto* sums = reinterpret_cast<const float*>(row + in.layout.sum_offset(two ? 2 : 1, int(w.group)));
    const std::int64_t several = kQuantGroup / scale_group(w), groups = cols / scale_group(w);
    float* scale = arena->take<float>(padded(kTileRows * groups));
    for (std::int64_t g = 0, from = 0; g < groups; ++from)
      for (std::int64_t j = 0; j < several && g < groups; ++j, ++g) scale[g] = two ? scales[from] * (1.0f / 256.0f) : scales[from];
    for (int n = 1; n < kTileRows; ++n) memcpy(scale + n * groups, scale, std::size_t(groups) * 4);
    const std::byte* q = row;
    if (!nibbles) {
      auto* natural = arena->take<std::byte>((two ? 2 : 1) * cols);
      for (int term = 0; term < (two ? 2 : 1); ++term)
        for (std::int64_t k = 0; k < half; ++k) {
          natural[term * cols + 2 * k] = row[term * cols + k];
          natural[term * cols + 2 * k + 1] = row[term * cols + half + k];
        }
      q = natural;
    }
    out->q[i] = q;
    out->scales[i] = scale;
    out->sums[i] = sums;
  }
  for (int i = m; i < kGemvRows; ++i) {  // a tile may be wider than m: repeat the first row
    out->q[i] = out->q[0];
    out->scales[i] = out->scales[0];
    out->sums[i] = out->sums[0];
  }
}

// Rows lie one behind the other, and a core has few requests of its own under way: lines are asked for in the order of memory, far
// ahead into the second-level cache, to cover the memory's latency, and once more near, into the first level. Either alone, or rows
// read without asking, is slower (ops/linear/NOTES.md).
enum : int { kAhead = 8192, kNear = 2048 };  // bytes

// N weight rows as a tile reads them.
template <int N>
struct WeightRows {
  const std::byte* codes[N];
  const float* scales;     // [input row][N][scale groups]: weight scale · input scale
  const float* biases[N];
  const std::byte* ask;  // N rows that will be read soon: their lines go to the second-level cache
};

// What all tiles of a call share.
struct GemvShape {
  std::int64_t cols, groups, scale_groups;  // groups: of weights
  LaneGroups lanes;                         // scale groups over the lanes of a step
};

template <bool kNibbles>
LILY_SIMD F32 lanes_of(const LaneGroups& g, const float* values, std::int64_t at, int part) {
  const F32 v = over_lanes(g, values, (kNibbles ? 2 : 1) * at);
  return part ? keep_n(v, part / 4, zero()) : v;  // what lies behind the row's last group may be a NaN
}

template <bool kNibbles, int kTerms, int R, int N>
LILY_SIMD void gemv_step(const WeightRows<N>& w, const GemvInput& in, const GemvShape& s, std::int64_t at, int part,
                         F32 (&acc)[R][N]) {
  const std::int64_t half = s.cols / 2;
  Bytes low[N], high[N];
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
    const Bytes c = loaded_once(part ? load_bytes_part(w.codes[n] + at, part) : load_bytes(w.codes[n] + at));
    low[n] = kNibbles ? low_nibbles(c) : c;
    high[n] = high_nibbles(c);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    Dot<!kNibbles> dot[N];
#pragma GCC unroll 2
    for (int term = 0; term < kTerms; ++term) {
      const std::byte* q = in.q[r] + term * s.cols + at;
      const Bytes even = part ? load_bytes_part(q, part) : load_bytes(q);
      const Bytes odd = !kNibbles ? even : part ? load_bytes_part(q + half, part) : load_bytes(q + half);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        if (term > 0) dot[n].next_term();
        dot[n].step(low[n], even);
        if (kNibbles) dot[n].step(high[n], odd);
      }
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n)
      acc[r][n] = fma(to_float(dot[n].total()), lanes_of<kNibbles>(s.lanes, w.scales + (r * N + n) * s.scale_groups, at, part), acc[r][n]);
  }
}

// out[r·kBlockRows + n] of R input rows and N weight rows.
template <bool kNibbles, int kTerms, int R, int N>
static void gemv_tile(const WeightRows<N>& w, const GemvInput& in, const GemvShape& s, float* out) {
  F32 acc[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) acc[r][n] = zero();
  for (std::int64_t g = 0; g < s.groups; g += kLanes) {
    const std::int64_t lanes = s.groups - g < kLanes ? s.groups - g : std::int64_t(kLanes);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const F32 bias = load_part(w.biases[n] + g, lanes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) acc[r][n] = fma(bias, load_part(in.sums[r] + g, lanes), acc[r][n]);
    }
  }
  const std::int64_t bytes = kNibbles ? s.cols / 2 : s.cols;
  std::int64_t at = 0;
  for (; at + kByteLanes <= bytes; at += kByteLanes) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      __builtin_prefetch(w.ask + at * N + n * kByteLanes, 0, 2);
      __builtin_prefetch(w.codes[0] + kNear + at * N + n * kByteLanes);
    }
    gemv_step<kNibbles, kTerms, R, N>(w, in, s, at, 0, acc);
  }
  if (at < bytes) gemv_step<kNibbles, kTerms, R, N>(w, in, s, at, int(bytes - at), acc);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) store_sums<N>(acc[r], out + r * kBlockRows);
}

template <bool kNibbles, int N>
static void gemv_tile_any(const WeightRows<N>& w, const GemvInput& in, const GemvShape& s, float* out) {
  // A tile writes 1, 2, 4 or 8 rows of out: the next such number.
  const auto run = [&](auto one, auto two) __attribute__((always_inline)) { in.two ? two(w, in, s, out) : one(w, in, s, out); };
  if constexpr (N == 4) {
    if (in.m == 1) run(gemv_tile<kNibbles, 1, 1, N>, gemv_tile<kNibbles, 2, 1, N>);
    else if (in.m == 2) run(gemv_tile<kNibbles, 1, 2, N>, gemv_tile<kNibbles, 2, 2, N>);
    else run(gemv_tile<kNibbles, 1, 4, N>, gemv_tile<kNibbles, 2, 4, N>);
  } else {
    run(gemv_tile<kNibbles, 1, 8, N>, gemv_tile<kNibbles, 2, 8, N>);
  }
}
LILY_SIMD int tile_height(int m) { return m <= 2 ? m : m <= 4 ? 4 : 8; }

// Where the N rows lie that come `ahead` rows after row r of a block [r0, r0 + n): in the block, in the one after it, or nowhere
// (then the rows themselves: asking for what is here costs nothing). Asks for their scales and biases.
LILY_SIMD const std::byte* rows_ahead(const Matrix& w, std::int64_t r0, int n, int r, const NextRows& next, int ahead, int count) {
  const Matrix* m = &w;
  std::int64_t row = r0 + r + ahead;
  if (r + ahead >= n) {
    const int over = r + ahead - n;
    if (over < next.n) {
      m = next.w;
      row = next.r0 + over;
    } else {
      row = r0 + r;
    }
  }
  const std::int64_t side = count * m->scale_row_bytes;  // rows follow one another
  for (std::int64_t i = 0; i < side; i += 64) {
    __builtin_prefetch(m->scales + row * m->scale_row_bytes + i);
    __builtin_prefetch(m->biases + row * m->scale_row_bytes + i);
  }
  return m->data + row * m->row_bytes;
}

// products[t·stride + i] = scale i · input[t][i], i over n scale groups, of which a weight group may have several.
static void scale_products(const Matrix& w, const std::byte* from, std::int64_t n, const float* const* input, int height,
                           std::int64_t stride, float* products) {
  const std::int64_t several = w.group / scale_group(w);
  load_floats(from, w.scale_type, n / several, products);
  if (several > 1)
    for (std::int64_t i = n; i-- > 0;) products[i] = products[i / several];
  for (int t = height; t-- > 0;) {  // the first, where the scales lie, last
    float* to = products + t * stride;
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(to + i, load(products + i) * load(input[t] + i));
    for (; i < n; ++i) to[i] = products[i] * input[t][i];
  }
}

template <bool kNibbles, int N>
static void gemv_rows(const Matrix& w, std::int64_t r0, int n, const GemvInput& in, const NextRows& next, float* out, Arena arena) {
  const int ahead = int((kAhead + w.row_bytes * N - 1) / (w.row_bytes * N)) * N, height = tile_height(in.m);
  const std::int64_t group = scale_group(w);
  const GemvShape shape = {w.cols, w.cols / w.group, w.cols / group, lane_groups(group, kNibbles ? 8 : 4)};
  float* scales = arena.take<float>(padded(height * N * shape.scale_groups));
  float* biases = arena.take<float>(padded(N * shape.groups));
  auto* codes = arena.take<std::uint8_t>(kNibbles ? 0 : N * w.cols);
  float last[kGemvRows * kBlockRows];
  for (int r = 0; r < n; r += N) {
    WeightRows<N> rows;
    rows.ask = rows_ahead(w, r0, n, r, next, ahead, N);
    rows.scales = scales;
    const int here = r + N <= n ? N : 1;  // whose scales lie together: a short tile repeats the last row
    for (int i = 0; i < N; ++i) {
      const std::int64_t row = r0 + r + (r + i < n ? i : n - 1 - r);
      rows.biases[i] = biases + i * shape.groups;
      if (i % here == 0) {
        load_floats(w.biases + row * w.scale_row_bytes, w.scale_type, here * shape.groups, biases + i * shape.groups);
        scale_products(w, w.scales + row * w.scale_row_bytes, here * shape.scale_groups, in.scales, height, N * shape.scale_groups,
                       scales + i * shape.scale_groups);
      }
      rows.codes[i] = w.data + row * w.row_bytes;
      if (kNibbles || w.bits == 8) continue;
      unpack_codes(rows.codes[i], w.bits, 0, w.cols, codes + i * w.cols);
      rows.codes[i] = reinterpret_cast<const std::byte*>(codes + i * w.cols);
    }
    if (r + N <= n && in.m == height) {
      gemv_tile_any<kNibbles, N>(rows, in, shape, out + r);
    } else {  // the tile is wider than what is wanted of it
      gemv_tile_any<kNibbles, N>(rows, in, shape, last);
      for (int t = 0; t < in.m; ++t)
        for (int i = 0; i < N && r + i < n; ++i) out[t * kBlockRows + r + i] = last[t * kBlockRows + i];
    }
  }
}

void gemv_block(const Matrix& w, std::int64_t r0, int n, const GemvInput& in, const NextRows& next, float* out, Arena arena) {
  const bool nibbles = uses_nibbles(w);
  if (in.m <= 4) {
    nibbles ? gemv_rows<true, 4>(w, r0, n, in, next, out, arena) : gemv_rows<false, 4>(w, r0, n, in, next, out, arena);
  } else {
    nibbles ? gemv_rows<true, 2>(w, r0, n, in, next, out, arena) : gemv_rows<false, 2>(w, r0, n, in, next, out, arena);
  }
}

}  // namespace lily::ops::LILY_ISA
