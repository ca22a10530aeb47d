// The form in which integer matrix products read their input rows (src/ops/quantize_rows writes it).
//
// A row is cut into groups of 64 values. A group has scale s = max|x|/120 and integers
//   q1 = round(x / s),  and with two terms  q2 = round((x − q1·s)·256 / s),  cut to −127 … 127,
// (all zero when max|x| < 1e-35: its inverse must be finite)
// so that x ≈ s·q1 (one term) or s/256·(256·q1 + q2) (two terms: error ≤ s/512, about 2^-16 of the group's maximum; s/256 where
// x/s lies within 1/512 of the middle between two integers, where q2 is cut).
// Sums of 32, 64 and 128 dequantised values, one for each size that a weight group may have, are what a weight's bias multiplies:
// for a reader of one term the sum of s·q1, for a reader of both the sum with q2 (a code's part and a bias's part of a product must
// see the same x, or its error grows).
// Pair sums are what gemm needs to multiply an even and an odd column at once (src/ops/matmul/gemm_panel.h, Form::paired):
// Σ (8·e − 120·o − e·o) over a group's pairs of an even value e and the odd value o after it, of the first term (kPairShift is 8). That
// form adds a code −8 … 7 to a value and needs the sum in a byte: hence 120, which costs 12 % of the rounding error's power against 127.
#pragma once

#include <cstdint>

namespace lily {

inline constexpr int kQuantGroup = 64;  // values under one scale
inline constexpr int kSumGroups[] = {32, 64, 128};
inline constexpr float kQuantSmallest = 1e-35f;
inline constexpr int kPairShift = 8;    // what 4-bit codes are lowered by, to lie around zero
inline constexpr int kPairRaise = 128 - kPairShift;  // what those beside unsigned values are raised by
inline constexpr float kQuantMost = 128 - kPairShift;  // largest |q1|

/// Where the parts of one quantised row of `width` values lie. width is a multiple of kQuantGroup.
struct QuantLayout {
  int width = 0;
  int terms = 0;  // 1 or 2
  constexpr std::int64_t term_offset(int term) const { return std::int64_t(term) * width; }  // int8[width], order: see position
  constexpr std::int64_t scale_offset() const { return std::int64_t(terms) * width; }        // float[width/64]: one unit of q1
  /// float[width/group]: sums of groups of 32, 64 or 128 values as their first `used` (1 … terms) terms stand for them.
  constexpr std::int64_t sum_offset(int used, int group) const {
    std::int64_t at = scale_offset() + width / kQuantGroup * 4;
    for (int u = 1; u <= used; ++u)
      for (int g : kSumGroups) {
        if (u == used && g == group) return at;
        at += width / g * 4;
      }
    return at;
  }
  constexpr std::int64_t pair_offset() const { return sum_offset(terms, 0); }  // int32[width/64]
  constexpr std::int64_t row_bytes() const { return (pair_offset() + width / kQuantGroup * 4 + 63) / 64 * 64; }
  /// Byte of value k in a term: even values in the first half, odd ones in the second, as 4-bit codes unpack.
  constexpr std::int64_t position(int k) const { return (k & 1) * (width / 2) + k / 2; }
};

}  // namespace lily
