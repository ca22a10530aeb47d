// A block's panels in scratch, and what is asked for ahead while they are multiplied: what every form of gemm's tiles shares.
//
// A panel is 2·kLanes weight rows, interleaved by dwords: a vector holds the same four columns (all even, or all odd, as the input is
// laid out) of kLanes rows. A packed panel has the codes of 4 bits as they lie in the checkpoint, so that a vector holds four even and
// four odd columns in its low and high nibbles.
//
// Paired columns are Winograd's inner product (A new algorithm for inner product, IEEE Transactions on Computers C-17, 1968). For an
// even and an odd column, codes e, o and values x, y, with E = e − 8 and O = o + 120 (kPairShift, kPairRaise):
//   e·x + o·y = (E + y)·(O + x) − E·O + (8·x − 120·y − x·y)
// one product of a signed and an unsigned byte and two additions in place of two products; E·O is summed once a panel, the rest once a
// row of input (plan/quant_layout.h, whose values stay within ±120 that the bytes hold the sums). The integers are the same.
#pragma once

#include "ops/cpu_units.h"
#include "ops/matmul/codes.h"

namespace lily::ops::LILY_ISA {

// How a panel's codes lie and how they are multiplied. All forms give the same bits.
enum class Form {
  wide,    // a byte a code of up to 8 bits
  bytes,   // a byte a code of up to 4 bits
  packed,  // two codes a byte
  paired,  // a byte a code: E and O
  amx,     // a byte a code, multiplied by tile registers
};

/// What paired columns and few rows (gemm_few_rows.h) are made for: 4-bit codes in segments of kQuantGroup columns, one term of input.
LILY_SIMD bool is_plain(const Matrix& w, const InputRows& in) { return w.bits == 4 && w.group >= kQuantGroup && !two_terms(in); }

constexpr int kPanelRows = 2 * kLanes;
constexpr int kMostPanelCols = 2048;
constexpr int kPanelBytes = kPanelRows * kMostPanelCols;  // from one panel to the next
/// Multiples of every group; the fastest ones (ops/linear/NOTES.md).
constexpr int panel_cols(Form form) { return form == Form::paired ? 2048 : form == Form::packed ? 1024 : 512; }
// What is multiplied of a panel: its codes, scales and biases [group][kBlockRows] and, paired, −Σ E·O [segment][kBlockRows].
struct Panel {
  std::uint8_t* codes;
  float *scales, *biases;
  std::int32_t* pairs;
};
/// Panel i of a block's, of which `first` is the first.
LILY_SIMD Panel panel_at(const Panel& first, int i) {
  const int row = i * kPanelRows;
  return {first.codes + i * kPanelBytes, first.scales + row, first.biases + row, first.pairs + row};
}
// What to ask for while multiplying: a block's codes, scales and biases, each of them in one piece, in the order of memory, then
// rows of input; `rate` lines for every step that ahead_of was told of: evenly, since a core has few requests under way at a time and waits
// when they are all taken.
struct Ahead {
  const std::byte *line, *end;
  const std::byte *then[2], *then_end[2];
  int left;  // of `then`
  int rate;
  const InputRows* in;
  int row, rows;
  std::int64_t row_bytes;
};
LILY_SIMD bool next_piece(Ahead* a) {
  if (a->left > 0) {
    --a->left;
    a->line = a->then[a->left];
    a->end = a->then_end[a->left];
  } else if (a->row < a->rows) {
    a->line = quantized_row(*a->in, a->row++);
    a->end = a->line + a->row_bytes;
  } else {
    return false;
  }
  return true;
}
LILY_SIMD void ask(Ahead* a, int lines) {
  // One check for all: this is called for every segment.
  if (a->end - a->line >= 64 * std::int64_t(lines)) {
    const std::byte* line = a->line;
    for (int i = 0; i < lines; ++i, line += 64) __builtin_prefetch(line, 0, 2);
    a->line = line;
    return;
  }
  for (int i = 0; i < lines; ++i, a->line += 64) {
    if (a->line >= a->end && !next_piece(a)) return;
    __builtin_prefetch(a->line, 0, 2);
  }
}
static Ahead ahead_of(const NextRows& next, int steps) {
  if (next.n == 0) return {};
  const Matrix& w = *next.w;
  const std::int64_t bytes = next.n * w.row_bytes, side = next.n * w.scale_row_bytes, row_bytes = next.in ? next.in->layout.row_bytes() : 0;
  const std::byte *codes = w.data + next.r0 * w.row_bytes, *scales = w.scales + next.r0 * w.scale_row_bytes,
                  *biases = w.biases + next.r0 * w.scale_row_bytes;
  const std::int64_t lines = (bytes + 2 * side) / 64 + 3 + next.m * div_up(row_bytes, 64);
  return {scales, scales + side, {codes, biases}, {codes + bytes, biases + side}, 2, int((lines + steps - 1) / steps),
          next.in, 0, next.m, row_bytes};
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

// Scales and biases of columns k … k + cols of kLanes rows from r0 (those ≥ end repeat the last).
LILY_SIMD void unpack_sides(const Matrix& w, std::int64_t r0, std::int64_t end, std::int64_t k, std::int64_t cols, float* scales, float* biases) {
  unpack_scales(w.scales, w.scale_row_bytes, w.scale_type, r0, end, k / w.group, int(cols / w.group), scales);
  unpack_scales(w.biases, w.scale_row_bytes, w.scale_type, r0, end, k / w.group, int(cols / w.group), biases);
}

// How a panel's columns fall into segments.
struct Segments {
  int count, halves;         // halves: times 32 columns
  int group_ends;            // a weight group ends after every so many segments: a power of two
  int scale_shift;           // segment s has the input scale s >> scale_shift
};
LILY_SIMD Segments segments_of(std::int64_t group, int cols) {
  const int most = kDotSteps * 4, size = group < most ? int(group) : most;
  return {cols / size, size / 32, int(group) / size, size == 64 ? 0 : 1};
}

}  // namespace lily::ops::LILY_ISA
