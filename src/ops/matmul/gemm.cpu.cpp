// Products of many quantised input rows with a matrix (prefill).
//
// A block of the matrix is unpacked panel by panel (gemm_panel.h); a tile multiplies one with some rows of input (gemm_tile.h, and
// gemm_tile_amx.h where the processor has matrix registers). Columns under one weight scale and one input scale make a segment
// (of 32 columns where sums are kept in 16 bits). For each segment and output:
//   out = fma(float(exact sum), weight scale · input scale, out)
// and after a weight group's last segment out = fma(bias, input sum, out), in the order of the columns: that order is the whole
// definition of a result's bits.
#if defined(__AMX_INT8__)
#include "ops/matmul/gemm_tile_amx.h"
#else
#include "ops/matmul/gemm_tile.h"
#endif

namespace lily::ops::LILY_ISA {

// kLanes rows of bytes, `stride` apart, interleaved by dwords; `nibbles`: each dword makes one of even and one of odd columns.
// out: dword i of vector v at (i·step)·2·kByteLanes.
LILY_SIMD void interleave_nibbles(const std::byte* in, std::int64_t stride, int cols, Ahead* ahead, std::uint8_t* out) {
  for (int k = 0; k < cols; k += 32, in += 16) {
    ask(ahead, 1);
    Bytes d[4];
    load_transposed(in, stride, d);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j, out += 4 * kByteLanes) {
      store_bytes(out, low_nibbles(d[j]));
      store_bytes(out + 2 * kByteLanes, high_nibbles(d[j]));
    }
  }
}
LILY_SIMD void interleave_bytes(const std::uint8_t* even, const std::uint8_t* odd, std::int64_t stride, int cols,
                                std::uint8_t* out) {
  for (int k = 0; k < cols; k += 32, even += 16, odd += 16) {
    Bytes e[4], o[4];
    load_transposed(even, stride, e);
    load_transposed(odd, stride, o);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j, out += 4 * kByteLanes) {
      store_bytes(out, e[j]);
      store_bytes(out + 2 * kByteLanes, o[j]);
    }
  }
}

// Codes of kLanes rows from r0 (those ≥ end repeat the last), columns k … k + cols, into one vector of a panel.
static void unpack_vector(const Matrix& w, std::int64_t r0, std::int64_t end, std::int64_t k, int cols, Ahead* ahead,
                          std::uint8_t* out) {
  const std::byte* data = w.data + k * w.bits / 8;
  alignas(64) std::uint8_t buffer[kLanes * kPanelCols];
  if (w.bits == 4) {
    if (r0 + kLanes <= end) {
      interleave_nibbles(data + r0 * w.row_bytes, w.row_bytes, cols, ahead, out);
      return;
    }
    for (int i = 0; i < kLanes; ++i) {
      const std::int64_t row = r0 + i < end ? r0 + i : end - 1;
      memcpy(buffer + i * (kPanelCols / 2), data + row * w.row_bytes, std::size_t(cols / 2));
    }
    interleave_nibbles(reinterpret_cast<const std::byte*>(buffer), kPanelCols / 2, cols, ahead, out);
    return;
  }
  std::uint8_t codes[kPanelCols];
  for (int i = 0; i < kLanes; ++i) {
    const std::int64_t row = r0 + i < end ? r0 + i : end - 1;
    unpack_codes(w.data + row * w.row_bytes, w.bits, k, cols, codes);
    split_bytes(codes, cols, buffer + i * kPanelCols, buffer + i * kPanelCols + kPanelCols / 2);
  }
  interleave_bytes(buffer, buffer + kPanelCols / 2, kPanelCols, cols, out);
}

// Scales (or biases) of kLanes rows as [group][kBlockRows].
static void unpack_scales(const std::byte* from, std::int64_t row_bytes, DType type, std::int64_t r0, std::int64_t end,
                          std::int64_t g0, int groups, float* out) {
  if (type == DType::bf16 && groups % 8 == 0 && r0 + kLanes <= end) {
    const std::byte* p = from + r0 * row_bytes + g0 * 2;
    for (int g = 0; g < groups; g += 8, p += 16) {
      Bytes d[4];
      load_transposed(p, row_bytes, d);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        store(out + (g + 2 * j) * kBlockRows, low_bf16(d[j]));
        store(out + (g + 2 * j + 1) * kBlockRows, high_bf16(d[j]));
      }
    }
    return;
  }
  for (int i = 0; i < kLanes; ++i) {
    const std::byte* p = from + (r0 + i < end ? r0 + i : end - 1) * row_bytes;
    for (int g = 0; g < groups; ++g) out[g * kBlockRows + i] = load_scalar(p, type, g0 + g);
  }
}

void gemm_block(const Matrix& w, std::int64_t r0, int n, const InputRows& in, int m, const NextRows& next, float* out,
                Arena arena) {
  auto* codes = arena.take<std::uint8_t>(kBlockRows * kPanelCols);
  float* scales = arena.take<float>(kMostGroups * kBlockRows);
  float* biases = arena.take<float>(kMostGroups * kBlockRows);
  auto** rows = arena.take<const std::byte*>(kBlockTokens);
  for (int i = 0; i < m; ++i) rows[i] = quantized_row(in, i);
  const bool two = two_terms(in), wide = w.bits > 4;
  const std::int64_t end = r0 + n;
  const int panels = (n + kPanelRows - 1) / kPanelRows, group = int(w.group);
  Ahead ahead = ahead_of(next, tiles_of(m) * panels * int(w.cols / 32), 2 * panels * int(w.cols / 32));
  const TileRegisters tiles(in, m, segments_of(group, kPanelCols));
  for (std::int64_t k = 0; k < w.cols; k += kPanelCols) {
    const int cols = int(w.cols - k < kPanelCols ? w.cols - k : std::int64_t(kPanelCols));
    for (int v = 0; v < 2 * panels; ++v) {
      const std::int64_t row = r0 + v * kLanes < end ? r0 + v * kLanes : end - 1;
      unpack_vector(w, row, end, k, cols, &ahead, codes + v / 2 * kPanelBytes + v % 2 * kByteLanes);
      unpack_scales(w.scales, w.scale_row_bytes, w.scale_type, row, end, k / group, cols / group, scales + v * kLanes);
      if (two)  // a sum counts in units of a 256th of the input's scale
        for (int g = 0; g < cols / group; ++g) {
          float* s = scales + g * kBlockRows + v * kLanes;
          store(s, load(s) * set1(1.0f / 256.0f));
        }
      unpack_scales(w.biases, w.scale_row_bytes, w.scale_type, row, end, k / group, cols / group, biases + v * kLanes);
    }
    const auto run = wide ? (two ? gemm_panels<true, 2> : gemm_panels<true, 1>)
                          : (two ? gemm_panels<false, 2> : gemm_panels<false, 1>);
    run(tiles, codes, panels, scales, biases, rows, in, k, cols, group, m, &ahead, out);
  }
}

void product_block(const Matrix& w, std::int64_t r0, int n, const InputRows& in, int m, bool decode, const NextRows& next,
                   float* out, Arena arena) {
  if (in.activations == plan::Activations::f32) {
    dense_block(w, r0, n, in, m, out, arena);
  } else if (!decode) {
    gemm_block(w, r0, n, in, m, next, out, arena);
  } else {
    for (int i = 0; i < m; i += kGemvRows) {
      InputRows part = in;
      part.first += i;
      if (in.pairs) part.pairs += i;
      Arena local = arena;
      GemvInput input;
      gemv_prepare(part, m - i < kGemvRows ? m - i : kGemvRows, w, &input, &local);
      gemv_block(w, r0, n, input, next, out + i * kBlockRows, local);
    }
  }
}

}  // namespace lily::ops::LILY_ISA
