// Products of many quantised input rows with a matrix (prefill).
//
// A block of the matrix is laid out panel by panel (gemm_panel.h); a tile multiplies one with some rows of input (gemm_tile.h, or
// gemm_tile_amx.h where the processor has matrix registers). With few rows of input the codes are multiplied as they lie
// (gemm_few_rows.h). Columns under one weight scale and one input scale make a segment (of 32 columns where sums are kept in 16
// bits). For each segment and output:
//   out = fma(float(exact sum), weight scale · input scale, out)
// and after a weight group's last segment out = fma(bias, input sum, out), in the order of the columns: that order is the whole
// definition of a result's bits.
#include "ops/matmul/gemm_few_rows.h"
#include "ops/matmul/gemm_tile.h"
#if defined(LILY_AMX)
#include "ops/matmul/gemm_tile_amx.h"
#endif

namespace lily::ops::LILY_ISA {

// kLanes rows of codes of 4 bits, `stride` bytes apart, into one vector of a panel: interleaved by dwords, each of which makes one of
// even and one of odd columns unless the panel is packed. out: dword i of vector v at (i·step)·2·kByteLanes. pairs (paired): −Σ E·O
// [segment][kBlockRows].
template <Form kForm>
LILY_SIMD void interleave_nibbles(const std::byte* in, std::int64_t stride, int cols, std::uint8_t* out, std::int32_t* pairs) {
  for (int k = 0; k < cols; k += 32, in += 16) {
    Bytes d[4];
    for (int i = 0; i < kLanes / 4; ++i)  // each row's line after next, from the second-level cache
      __builtin_prefetch(in + 128 + (k / 32 % 4 * (kLanes / 4) + i) * stride);
    load_transposed(in, stride, d);
    if constexpr (kForm == Form::packed) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j, out += 2 * kByteLanes) store_bytes(out, d[j]);
    } else {
      TileDot<kForm> dot;
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j, out += 4 * kByteLanes) {
        Bytes even = low_nibbles(d[j]), odd = high_nibbles(d[j]);
        if constexpr (kForm == Form::paired) {
          even = add_bytes(even, set1_byte(-kPairShift)), odd = add_bytes(odd, set1_byte(kPairRaise));
          dot.step(odd, even);
        }
        store_bytes(out, even);
        store_bytes(out + 2 * kByteLanes, odd);
      }
      if constexpr (kForm == Form::paired) {
        std::int32_t* to = pairs + k / kQuantGroup * kBlockRows;
        store_bytes(to, as_bytes(subtract(k % kQuantGroup ? as_int(load_bytes(to)) : zero_int(), dot.total())));
      }
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
static void unpack_vector(const Matrix& w, std::int64_t r0, std::int64_t end, std::int64_t k, int cols,
                          [[maybe_unused]] Form form, std::uint8_t* out, std::int32_t* pairs) {
  const std::byte* data = w.data + k * w.bits / 8;
  alignas(64) std::uint8_t buffer[kLanes * kMostPanelCols / 2];
  if (w.bits == 4) {
    const std::byte* in = data + r0 * w.row_bytes;
    std::int64_t stride = w.row_bytes;
    if (r0 + kLanes > end) {
      in = reinterpret_cast<const std::byte*>(buffer);
      stride = kMostPanelCols / 2;
      for (int i = 0; i < kLanes; ++i) {
        const std::int64_t row = r0 + i < end ? r0 + i : end - 1;
        memcpy(buffer + i * stride, data + row * w.row_bytes, std::size_t(cols / 2));
      }
    }
#if defined(__AVX512F__)
    if (form == Form::packed) return interleave_nibbles<Form::packed>(in, stride, cols, out, pairs);
    if (form == Form::paired) return interleave_nibbles<Form::paired>(in, stride, cols, out, pairs);
#endif
    return interleave_nibbles<Form::bytes>(in, stride, cols, out, pairs);
  }
  constexpr int kCols = panel_cols(Form::bytes);
  std::uint8_t codes[kCols];
  for (int i = 0; i < kLanes; ++i) {
    const std::int64_t row = r0 + i < end ? r0 + i : end - 1;
    unpack_codes(w.data + row * w.row_bytes, w.bits, k, cols, codes);
    split_bytes(codes, cols, buffer + i * kCols, buffer + i * kCols + kCols / 2);
  }
  interleave_bytes(buffer, buffer + kCols / 2, kCols, cols, out);
}

// Columns k … k + cols of the rows from r0 (those ≥ end repeat the last), with their scales and biases. two: the input has two terms.
static void lay_out(const Matrix& w, std::int64_t r0, std::int64_t end, std::int64_t k, int cols, Form form, bool two, const Panel& to) {
  for (int v = 0; v < 2; ++v) {
    const std::int64_t row = r0 + v * kLanes < end ? r0 + v * kLanes : end - 1;
    const int at = v * kLanes;
    unpack_vector(w, row, end, k, cols, form, to.codes + v * kByteLanes, to.pairs + at);
    unpack_sides(w, row, end, k, cols, to.scales + at, to.biases + at);
    if (!two) continue;
    for (int g = 0; g < cols / w.group; ++g) {  // a sum counts in units of a 256th of the input's scale
      float* s = to.scales + g * kBlockRows + at;
      store(s, load(s) * set1(1.0f / 256.0f));
    }
  }
}

// Which form is the fastest (ops/linear/NOTES.md). Packed panels are written and read in half the bytes, but every tile takes the
// nibbles apart again; paired columns need two additions a product. Processors of AMD have ports for both besides those that
// multiply; others gain from packed panels while one has few tiles. The tile registers of AMX have little to do for a few rows.
static Form form_of(const Matrix& w, [[maybe_unused]] const InputRows& in, [[maybe_unused]] int m) {
#if defined(__AVX512F__)
  const bool can_pack = w.bits == 4 && in.techniques.packed_panels;
#if defined(LILY_AMX)
  return can_pack && m <= 24 ? Form::packed : Form::amx;
#else
  const bool ports = adds_beside_products();
  if (ports && is_plain(w, in) && in.techniques.paired_columns) return Form::paired;
  if (can_pack && (ports || m <= 64)) return Form::packed;
#endif
#endif
  return w.bits > 4 ? Form::wide : Form::bytes;
}

using RunPanels = void (*)(const Panel&, int panels, const std::byte* const* rows, const InputRows&, std::int64_t k, int cols,
                           int group, int m, Ahead*, float* out);
template <int kTerms>
static RunPanels run_of(Form form) {
  switch (form) {
#if defined(__AVX512F__)
    case Form::packed: return gemm_panels<Form::packed, kTerms>;
    case Form::paired: return gemm_panels<Form::paired, 1>;
#endif
#if defined(LILY_AMX)
    case Form::amx: return amx::gemm_panels<kTerms>;
#endif
    case Form::wide: return gemm_panels<Form::wide, kTerms>;
    default: return gemm_panels<Form::bytes, kTerms>;
  }
}

void gemm_block(const Matrix& w, std::int64_t r0, int n, const InputRows& in, int m, const NextRows& next, float* out,
                Arena arena) {
  Panel first;
  first.codes = arena.take<std::uint8_t>(kBlockRows * kMostPanelCols);
  first.scales = arena.take<float>(kMostPanelCols / 32 * kBlockRows);
  first.biases = arena.take<float>(kMostPanelCols / 32 * kBlockRows);
  first.pairs = arena.take<std::int32_t>(kMostPanelCols / kQuantGroup * kBlockRows);
  auto** rows = arena.take<const std::byte*>(kBlockTokens);
  for (int i = 0; i < m; ++i) rows[i] = quantized_row(in, i);
  const bool two = two_terms(in);
  const Form form = form_of(w, in, m);
#if defined(__AVX512F__)
  if (takes_few_rows(form, w, n, in, m)) return few_rows_block(w, r0, n, in, rows, m, next, first, out);
#endif
  const RunPanels run = two ? run_of<2>(form) : run_of<1>(form);
  int tiles = tiles_of(m);
#if defined(LILY_AMX)
  if (form == Form::amx) tiles = amx::tiles_of(m);
  const amx::TileRegisters registers(amx::tile_shapes(amx::tile_height(in, m), segments_of(int(w.group), amx::kCols)), form == Form::amx);
#endif
  const int panels = (n + kPanelRows - 1) / kPanelRows;
  const int most_cols = panel_cols(form);
  Ahead ahead = ahead_of(next, tiles * panels * int(w.cols / 32));
  for (std::int64_t k = 0; k < w.cols; k += most_cols) {
    const int cols = int(w.cols - k < most_cols ? w.cols - k : std::int64_t(most_cols));
    // A short panel stays in the first-level cache while its tiles are multiplied; longer ones would not, and share the input's reading.
    const int at_once = form == Form::paired && cols <= 512 ? 1 : panels;
    for (int p = 0; p < panels; p += at_once) {
      for (int i = 0; i < at_once; ++i) lay_out(w, r0 + (p + i) * kPanelRows, r0 + n, k, cols, form, two, panel_at(first, i));
      run(first, at_once, rows, in, k, cols, int(w.group), m, &ahead, out + p * kPanelRows);
    }
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
