// Not an op: what the machine itself can do, measured in the same run as whatever is set against it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lily::ops {

/// One thread's measuring loops, in this instruction set.
struct CpuProbe {
  /// Multiplies u8 by s8 into int32 in registers, as the matrix products do, without touching memory, `rounds` (at least 1) times.
  /// Returns the operations done (a multiplication and an addition are two).
  std::int64_t (*int8_ops)(std::int64_t rounds);
  /// Reads `bytes` (a multiple of 512) from p once, in order; returns a value that depends on them.
  std::uint64_t (*read)(const std::byte* p, std::size_t bytes);
};

}  // namespace lily::ops
