// Which models the CPU's kernels have room for.
#pragma once

#include "model/shape.h"

namespace lily {

/// Every worker has kCpuScratchBytes, which hold these: columns of a matrix, channels of all query heads together (ops/matmul/matmul.h,
/// ops/attention/attention.cpu.cpp).
inline constexpr int kMostCpuColumns = 16384;

/// Error(unsupported) that names the first size for which the kernels have no room: the reference back end has none of these limits.
void require_cpu_fit(const ModelShape& shape);

}  // namespace lily
