// How the CPU's kernels cut work into units, and how they find a row's conversation. Same rules as ops/simd.h.
#pragma once

#include "ops/cpu_kernels.h"
#include "ops/simd.h"

namespace lily::ops::LILY_ISA {

/// Elementwise ops work in units of this many values of the whole [rows, width] array.
constexpr std::int64_t kElementBlock = 4096;

LILY_SIMD std::int64_t div_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
LILY_SIMD std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// The segment that holds `row`; every row of a pass belongs to one.
LILY_SIMD const SegmentRows& segment_of(const SegmentRows* segments, int row) {
  while (row >= segments->row + segments->rows) ++segments;
  return *segments;
}

}  // namespace lily::ops::LILY_ISA
