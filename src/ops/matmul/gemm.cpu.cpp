// Products of many quantised input rows with a matrix (prefill).
//
// A block of the matrix is laid out panel by panel (gemm_panel.h); a tile multiplies one with some rows of input (gemm_tile.h, or
// gemm_tile_amx.h where the processor has matrix registers). Columns under one weight scale and one input scale make a segment
// (of 32 columns where sums are kept in 16 bits). For each segment and output:
//   out = fma(float(exact sum), weight scale · input scale, out)
// and after a weight group's last segment out = fma(bias, input sum, out), in the order of the columns: that order is the whole
// definition of a result's bits.
#include "ops/matmul/gemm_tile.h"
#if defined(LILY_AMX)
#include "ops/matmul/gemm_tile_amx.h"
#endif

namespace lily::ops::LILY_ISA {

// kLanes rows of bytes, `stride` apart, interleaved by dwords; `nibbles`: each dword makes one of even and one of odd columns.
// out: dword i of vector v at (i·step)·2·kByteLanes.
LILY_SIMD void interleave_nibbles(const std::byte* in, std::int64_t stride, int cols, std::uint8_t* out) {
  for (int k = 0; k < cols; k += 32, in += 16) {
    Bytes d[4];
    load_transposed(in, stride, d);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j, out += 4 * kByteLanes) {
      store_bytes(out, low_nibbles(d[j]));
      store_bytes(out + 2 * kByteLanes, high_nibbles(d[j]));
    }
  }
}
// The same without taking the nibbles apart.
LILY_SIMD void interleave_packed(const std::byte* in, std::int64_t stride, int cols, std::uint8_t* out) {
  for (int k = 0; k < cols; k += 32, in += 16) {
    Bytes d[4];
    load_transposed(in, stride, d);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j, out += 2 * kByteLanes) store_bytes(out, d[j]);
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
static void unpack_vector(const Matrix& w, std::int64_t r0, std::int64_t end, std::int64_t k, int cols, bool packed,
                          std::uint8_t* out) {
  const std::byte* data = w.data + k * w.bits / 8;
  alignas(64) std::uint8_t buffer[kLanes * kPanelCols];  // or of half the bytes for packed columns, twice as many
  if (w.bits == 4) {
    const std::byte* in = data + r0 * w.row_bytes;
    std::int64_t stride = w.row_bytes;
    if (r0 + kLanes > end) {
      in = reinterpret_cast<const std::byte*>(buffer);
      stride = kPackedPanelCols / 2;
      for (int i = 0; i < kLanes; ++i) {
        const std::int64_t row = r0 + i < end ? r0 + i : end - 1;
        memcpy(buffer + i * stride, data + row * w.row_bytes, std::size_t(cols / 2));
      }
    }
    packed ? interleave_packed(in, stride, cols, out) : interleave_nibbles(in, stride, cols, out);
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

// How a block is multiplied. All forms give the same bits.
enum class Form { bytes, packed, amx };

// Packed panels are written and read in half the bytes, but every tile takes the nibbles apart again. Processors of AMD have
// ports for that besides those that multiply; others gain while a panel has few tiles (ops/linear/NOTES.md). The tile registers
// of AMX have little to do for a few rows.
static Form form_of([[maybe_unused]] const Matrix& w, [[maybe_unused]] const InputRows& in, [[maybe_unused]] int m) {
#if defined(__AVX512F__)
  const bool can_pack = w.bits == 4 && in.packed_panels;
#if defined(LILY_AMX)
  return can_pack && m <= 24 ? Form::packed : Form::amx;
#else
  return can_pack && (m <= 64 || __builtin_cpu_is("amd")) ? Form::packed : Form::bytes;
#endif
#else
  return Form::bytes;
#endif
}

void gemm_block(const Matrix& w, std::int64_t r0, int n, const InputRows& in, int m, const NextRows& next, float* out,
                Arena arena) {
  auto* codes = arena.take<std::uint8_t>(kBlockRows * kPanelCols);
  float* scales = arena.take<float>(kMostGroups * kBlockRows);
  float* biases = arena.take<float>(kMostGroups * kBlockRows);
  auto** rows = arena.take<const std::byte*>(kBlockTokens);
  for (int i = 0; i < m; ++i) rows[i] = quantized_row(in, i);
  const bool two = two_terms(in), wide = w.bits > 4;
  const Form form = form_of(w, in, m);
  auto* run = wide ? (two ? gemm_panels<true, false, 2> : gemm_panels<true, false, 1>)
                   : (two ? gemm_panels<false, false, 2> : gemm_panels<false, false, 1>);
  int tiles = tiles_of(m);
#if defined(__AVX512F__)
  if (form == Form::packed) run = two ? gemm_panels<false, true, 2> : gemm_panels<false, true, 1>;
#endif
#if defined(LILY_AMX)
  if (form == Form::amx) {
    run = two ? amx::gemm_panels<2> : amx::gemm_panels<1>;
    tiles = amx::tiles_of(m);
  }
  const amx::TileRegisters registers(form == Form::amx ? amx::tile_height(in, m) : 0, segments_of(int(w.group), kPanelCols));
#endif
  const std::int64_t end = r0 + n;
  const int panels = (n + kPanelRows - 1) / kPanelRows, group = int(w.group);
  const int most_cols = form == Form::packed ? kPackedPanelCols : kPanelCols;
  Ahead ahead = ahead_of(next, tiles * panels * int(w.cols / 32));
  for (std::int64_t k = 0; k < w.cols; k += most_cols) {
    const int cols = int(w.cols - k < most_cols ? w.cols - k : std::int64_t(most_cols));
    for (int v = 0; v < 2 * panels; ++v) {
      const std::int64_t row = r0 + v * kLanes < end ? r0 + v * kLanes : end - 1;
      unpack_vector(w, row, end, k, cols, form == Form::packed, codes + v / 2 * kPanelBytes + v % 2 * kByteLanes);
      unpack_scales(w.scales, w.scale_row_bytes, w.scale_type, row, end, k / group, cols / group, scales + v * kLanes);
      if (two)  // a sum counts in units of a 256th of the input's scale
        for (int g = 0; g < cols / group; ++g) {
          float* s = scales + g * kBlockRows + v * kLanes;
          store(s, load(s) * set1(1.0f / 256.0f));
        }
      unpack_scales(w.biases, w.scale_row_bytes, w.scale_type, row, end, k / group, cols / group, biases + v * kLanes);
    }
    run(codes, panels, scales, biases, rows, in, k, cols, group, m, &ahead, out);
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
