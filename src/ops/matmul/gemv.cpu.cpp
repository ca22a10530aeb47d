// Products of a few quantised input rows with a matrix that is read once (decode).
//
// A step takes kByteLanes packed bytes of a row of 4-bit codes: the low nibbles are even columns, the high ones odd columns, as
// the input is laid out (plan/quant_layout.h). A lane sums 8 columns exactly, becomes a float, and is added by
//   acc = fma(float(sum)·input scale, weight scale, acc)
// to one running sum a lane, which starts with the biases' part: fma(bias, input sum, …), lane i over groups i, i + kLanes, ….
// Other codes go through scratch, one a byte, laid out the same way.
#include "ops/matmul/codes.h"

namespace lily::ops::LILY_ISA {

// Lengths of a row's side arrays: whole vectors and one more of zeros, so that a vector load may begin at any element.
LILY_SIMD std::int64_t gemv_lanes(std::int64_t cols) { return round_up(cols / 8, kLanes); }
LILY_SIMD std::int64_t gemv_groups(std::int64_t cols, std::int64_t group) {
  return round_up(cols / group, kLanes) + 2 * kLanes;
}

LILY_SIMD void clear_from(float* p, std::int64_t from, std::int64_t to) {
  for (std::int64_t i = from; i < to; ++i) p[i] = 0.0f;
}

void gemv_prepare(const InputRows& in, int m, std::int64_t cols, std::int64_t group, GemvInput* out, Arena* arena) {
  const std::int64_t lanes = gemv_lanes(cols), groups = gemv_groups(cols, group), parts = cols / kQuantGroup;
  const int per_group = int(group / kQuantGroup);
  float* lane = arena->take<float>(kGemvRows * lanes);
  float* sum = arena->take<float>(kGemvRows * groups);
  *out = {m, two_terms(in), cols, group, {}, lane, sum};
  for (int i = 0; i < m; ++i, lane += lanes, sum += groups) {
    const std::byte* row = quantized_row(in, i);
    const auto* scales = reinterpret_cast<const float*>(row + in.layout.scale_offset());
    const auto* sums = reinterpret_cast<const float*>(row + in.layout.sum_offset(out->two ? 2 : 1));
    out->q[i] = row;
    for (std::int64_t g = 0; g < parts; ++g) {
      const float scale = out->two ? scales[g] / 254.0f : scales[g];
      for (int j = 0; j < 4; ++j) lane[4 * g + j] = scale;
    }
    clear_from(lane, 4 * parts, lanes);
    for (std::int64_t g = 0; g < cols / group; ++g) {
      float s = sums[g * per_group];
      for (int j = 1; j < per_group; ++j) s += sums[g * per_group + j];
      sum[g] = s;
    }
    clear_from(sum, cols / group, groups);
  }
  for (int i = m; i < kGemvRows; ++i) {  // a tile may be wider than m: repeat the first row
    out->q[i] = out->q[0];
    memcpy(lane, out->lanes, std::size_t(lanes) * 4);
    memcpy(sum, out->sums, std::size_t(groups) * 4);
    lane += lanes, sum += groups;
  }
}

// Rows lie one behind the other, and the processor's own prefetcher follows one ascending stream a page: asking for lines in the
// order of memory, far enough ahead to cover the memory's latency, is what keeps it going; N rows read side by side stop it.
enum : int { kAhead = 4096 };  // bytes

// N weight rows as a tile reads them.
template <int N>
struct WeightRows {
  const std::byte* codes[N];    // packed nibbles; or even columns, one a byte
  const std::byte* odd[N];      // odd columns, one a byte
  const float* scales[N];       // nibbles: one a group of 64; bytes: one a lane
  const float* biases[N];       // one a group
  const std::byte* ask;         // N rows that will be read soon: their lines are asked for in the order of memory
};

template <bool kNibbles, int kTerms, int R, int N>
LILY_SIMD void gemv_step(const WeightRows<N>& w, const GemvInput& in, std::int64_t at, int part, F32 (&acc)[R][N]) {
  const std::int64_t half = in.cols / 2, lanes = gemv_lanes(in.cols);
  Bytes low[N], high[N];
  F32 scale[N];
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
    const Bytes c = part ? load_bytes_part(w.codes[n] + at, part) : load_bytes(w.codes[n] + at);
    if (kNibbles) {
      low[n] = low_nibbles(c);
      high[n] = high_nibbles(c);
      scale[n] = scales64(w.scales[n], at / kByteLanes);
    } else {
      low[n] = c;
      high[n] = part ? load_bytes_part(w.odd[n] + at, part) : load_bytes(w.odd[n] + at);
      scale[n] = load(w.scales[n] + at / 4);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    Dot<!kNibbles> dot[N];
#pragma GCC unroll 2
    for (int term = 0; term < kTerms; ++term) {
      const std::byte* q = in.q[r] + term * in.cols + at;
      const Bytes even = part ? load_bytes_part(q, part) : load_bytes(q);
      const Bytes odd = part ? load_bytes_part(q + half, part) : load_bytes(q + half);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        if (term > 0) dot[n].next_term();
        dot[n].step(low[n], even);
        dot[n].step(high[n], odd);
      }
    }
    const F32 x = load(in.lanes + r * lanes + at / 4);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) acc[r][n] = fma(to_float(dot[n].total()) * x, scale[n], acc[r][n]);
  }
}

// out[r·kBlockRows + n] of R input rows and N weight rows.
template <bool kNibbles, int kTerms, int R, int N>
static void gemv_tile(const WeightRows<N>& w, const GemvInput& in, float* out) {
  const std::int64_t groups = gemv_groups(in.cols, in.group), half = in.cols / 2;
  F32 acc[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) acc[r][n] = zero();
  for (std::int64_t g = 0; g < in.cols / in.group; g += kLanes)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) acc[r][n] = fma(load(w.biases[n] + g), load(in.sums + r * groups + g), acc[r][n]);
  std::int64_t at = 0;
  for (; at + kByteLanes <= half; at += kByteLanes) {
    if (kNibbles)
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) __builtin_prefetch(w.ask + at * N + n * kByteLanes);
    gemv_step<kNibbles, kTerms, R, N>(w, in, at, 0, acc);
  }
  if (at < half) gemv_step<kNibbles, kTerms, R, N>(w, in, at, int(half - at), acc);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) out[r * kBlockRows + n] = sum(acc[r][n]);
}

template <bool kNibbles, int N>
static void gemv_tile_any(const WeightRows<N>& w, const GemvInput& in, float* out) {
  // A tile writes 1, 2, 4 or 8 rows of out: the next such number.
  if constexpr (N == 4) {
    if (in.m == 1) in.two ? gemv_tile<kNibbles, 2, 1, N>(w, in, out) : gemv_tile<kNibbles, 1, 1, N>(w, in, out);
    else in.two ? gemv_tile<kNibbles, 2, 2, N>(w, in, out) : gemv_tile<kNibbles, 1, 2, N>(w, in, out);
  } else {
    if (in.m <= 4) in.two ? gemv_tile<kNibbles, 2, 4, N>(w, in, out) : gemv_tile<kNibbles, 1, 4, N>(w, in, out);
    else in.two ? gemv_tile<kNibbles, 2, 8, N>(w, in, out) : gemv_tile<kNibbles, 1, 8, N>(w, in, out);
  }
}

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
  for (int i = 0; i < count; ++i) {
    __builtin_prefetch(m->scales + (row + i) * m->scale_row_bytes);
    __builtin_prefetch(m->biases + (row + i) * m->scale_row_bytes);
  }
  return m->data + row * m->row_bytes;
}

template <bool kNibbles, int N>
static void gemv_rows(const Matrix& w, std::int64_t r0, int n, const GemvInput& in, const NextRows& next, float* out, Arena arena) {
  const int ahead = int((kAhead + w.row_bytes * N - 1) / (w.row_bytes * N)) * N;
  const std::int64_t groups = gemv_groups(w.cols, w.group), count = w.cols / w.group, lanes = gemv_lanes(w.cols);
  float* scales = arena.take<float>(N * groups);
  float* biases = arena.take<float>(N * groups);
  float* spread = arena.take<float>(kNibbles ? 0 : N * lanes);
  auto* codes = arena.take<std::uint8_t>(kNibbles ? 0 : w.cols);
  auto* split = arena.take<std::uint8_t>(kNibbles ? 0 : N * w.cols);
  float last[kGemvRows * kBlockRows];
  for (int i = 0; i < N; ++i) {
    clear_from(scales + i * groups, count, groups);
    clear_from(biases + i * groups, count, groups);
    if (!kNibbles) clear_from(spread + i * lanes, w.cols / 8, lanes);
  }
  for (int r = 0; r < n; r += N) {
    WeightRows<N> rows;
    rows.ask = rows_ahead(w, r0, n, r, next, ahead, N);
    for (int i = 0; i < N; ++i) {
      const std::int64_t row = r0 + (r + i < n ? r + i : n - 1);  // a short tile repeats the last row
      load_floats(w.scales + row * w.scale_row_bytes, w.scale_type, count, scales + i * groups);
      load_floats(w.biases + row * w.scale_row_bytes, w.scale_type, count, biases + i * groups);
      rows.scales[i] = scales + i * groups;
      rows.biases[i] = biases + i * groups;
      rows.codes[i] = w.data + row * w.row_bytes;
      rows.odd[i] = nullptr;
      if (kNibbles) continue;
      auto* even = split + i * w.cols;
      const auto* natural = reinterpret_cast<const std::uint8_t*>(rows.codes[i]);
      if (w.bits != 8) {
        unpack_codes(rows.codes[i], w.bits, 0, w.cols, codes);
        natural = codes;
      }
      split_bytes(natural, w.cols, even, even + w.cols / 2);
      float* lane = spread + i * lanes;
      for (std::int64_t g = 0; g < count; ++g)
        for (std::int64_t j = 0; j < w.group; j += 8) *lane++ = rows.scales[i][g];
      rows.codes[i] = reinterpret_cast<const std::byte*>(even);
      rows.odd[i] = rows.codes[i] + w.cols / 2;
      rows.scales[i] = spread + i * lanes;
    }
    if (r + N <= n && (in.m & (in.m - 1)) == 0) {
      gemv_tile_any<kNibbles, N>(rows, in, out + r);
    } else {  // the tile is wider than what is wanted of it
      gemv_tile_any<kNibbles, N>(rows, in, last);
      for (int t = 0; t < in.m; ++t)
        for (int i = 0; i < N && r + i < n; ++i) out[t * kBlockRows + r + i] = last[t * kBlockRows + i];
    }
  }
}

void gemv_block(const Matrix& w, std::int64_t r0, int n, const GemvInput& in, const NextRows& next, float* out, Arena arena) {
  const bool nibbles = w.bits == 4 && w.group == 64;
  if (in.m <= 2) {
    nibbles ? gemv_rows<true, 4>(w, r0, n, in, next, out, arena) : gemv_rows<false, 4>(w, r0, n, in, next, out, arena);
  } else {
    nibbles ? gemv_rows<true, 2>(w, r0, n, in, next, out, arena) : gemv_rows<false, 2>(w, r0, n, in, next, out, arena);
  }
}

}  // namespace lily::ops::LILY_ISA
