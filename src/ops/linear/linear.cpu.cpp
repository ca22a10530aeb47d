// Prefill: a unit is kBlockRows rows of W times kBlockTokens rows of input; a block of input goes through the whole matrix
// before the next one, so that it stays in the second-level cache. Decode: a unit is kGemvBlock rows of W times all rows.
#include "ops/linear/linear.h"

#include "ops/cpu_units.h"
#include "ops/matmul/matmul.h"

namespace lily::ops::LILY_ISA {

constexpr int kWriteAhead = 12;

// out [m][kBlockRows] → y, with the residual.
static void write_block(const LinearArgs& a, const float* out, std::int64_t t0, int m, std::int64_t r0, int n) {
  for (int t = 0; t < m; ++t, out += kBlockRows) {
    const std::int64_t at = (t0 + t) * a.w.rows + r0;
    if (t + kWriteAhead < m)  // each row of y is another page: have its lines on the way
      for (int i = 0; i < n; i += 16) __builtin_prefetch(a.y + at + kWriteAhead * a.w.rows + i, 1);
    for (int i = 0; i < n; i += kLanes) {
      const int lanes = n - i < kLanes ? n - i : int(kLanes);
      F32 v = load(out + i);
      if (a.residual) v = load_part(a.residual + at + i, lanes) + v;
      store_part(a.y + at + i, v, lanes);
    }
  }
}

std::int64_t linear_units(const LinearArgs& a) {
  if (a.decode) return div_up(a.w.rows, kGemvBlock);
  return div_up(a.w.rows, kBlockRows) * div_up(a.rows, kBlockTokens);
}

static void linear_decode(const LinearArgs& a, const InputRows& in, std::int64_t begin, std::int64_t end, Arena arena) {
  float* out = arena.take<float>(kGemvRows * kBlockRows);
  const bool dense = a.activations == plan::Activations::f32;
  for (int t = 0; t < a.rows; t += kGemvRows) {
    const int m = a.rows - t < kGemvRows ? a.rows - t : kGemvRows;
    InputRows rows = in;
    rows.first = t;
    Arena local = arena;
    GemvInput input;
    if (!dense) gemv_prepare(rows, m, a.w, &input, &local);
    for (std::int64_t u = begin; u < end; ++u) {
      const std::int64_t r0 = u * kGemvBlock;
      const int n = int(a.w.rows - r0 < kGemvBlock ? a.w.rows - r0 : std::int64_t(kGemvBlock));
      const std::int64_t left = a.w.rows - r0 - n;
      const NextRows next = {&a.w, r0 + n, int(left < kGemvBlock ? left : std::int64_t(kGemvBlock))};
      dense ? dense_block(a.w, r0, n, rows, m, out, local) : gemv_block(a.w, r0, n, input, next, out, local);
      write_block(a, out, t, m, r0, n);
    }
  }
}

void linear_run(const LinearArgs& a, std::int64_t begin, std::int64_t end, CpuScratch& scratch) {
  Arena arena = {scratch.data};
  InputRows in = {a.activations, a.x, a.q, a.layout, a.w.cols, 0, nullptr, 1};
  if (a.decode) {
    linear_decode(a, in, begin, end, arena);
    return;
  }
  in.techniques = a.techniques;
  const std::int64_t blocks = div_up(a.w.rows, kBlockRows);
  float* out = arena.take<float>(kBlockTokens * kBlockRows);
  for (std::int64_t u = begin; u < end; ++u) {
    const std::int64_t r0 = u % blocks * kBlockRows;
    in.first = u / blocks * kBlockTokens;
    const int m = int(a.rows - in.first < kBlockTokens ? a.rows - in.first : std::int64_t(kBlockTokens));
    const int n = int(a.w.rows - r0 < kBlockRows ? a.w.rows - r0 : std::int64_t(kBlockRows));
    const std::int64_t left = a.w.rows - r0 - n;
    const int next = int(left < kBlockRows ? left : std::int64_t(kBlockRows));
    product_block(a.w, r0, n, in, m, false, {&a.w, r0 + n, next}, out, arena);
    write_block(a, out, in.first, m, r0, n);
  }
}

}  // namespace lily::ops::LILY_ISA
