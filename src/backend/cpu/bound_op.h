// An op of a plan tied to one pass: its arguments, its kernel and how many pieces of work it makes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu_kernels.h"

namespace lily {

struct BoundOp {
  static constexpr std::size_t kArgsBytes = 384;
  alignas(16) std::byte args[kArgsBytes];
  std::int64_t units = 0;
  void (*kernel)() = nullptr;  // the kernel's run function, whatever its argument type
  void (*call)(const BoundOp&, std::int64_t begin, std::int64_t end, ops::CpuScratch&) = nullptr;

  void run(std::int64_t begin, std::int64_t end, ops::CpuScratch& scratch) const { call(*this, begin, end, scratch); }
};

/// Where decode attention leaves the ranges of one row's keys: memory of the back end that all layers share.
struct AttentionRoom {
  float* partial = nullptr;          // attention_room_floats(pass)
  std::int32_t* finished = nullptr;  // [rows · kv_heads], zero
};
/// Floats of AttentionRoom::partial that a decode pass of these rows needs.
std::int64_t attention_room_floats(const ModelShape& shape, std::span<const ops::SegmentRows> segments);

/// Error(internal) for an op kind without a CPU kernel.
void bind_op(const ops::CpuKernels& kernels, const plan::Op& op, const ops::Pass& pass, const AttentionRoom& room, BoundOp& out);

}  // namespace lily
