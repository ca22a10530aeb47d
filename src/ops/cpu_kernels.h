// The CPU's kernels as a table of functions, one table an instruction set. src/ops/*/*.cpu.cpp are compiled once for each set
// into its own namespace (LILY_ISA); the back end picks a table at run time.
//
// Rules for *.cpu.cpp, because a newer instruction set's code must never run on an older machine:
//   - everything lies in namespace lily::ops::LILY_ISA; helpers are static or in ops/simd.h (same namespace);
//   - no standard-library templates that could be emitted out of line (a lint reads the objects' symbols);
//   - nothing throws, nothing allocates: a kernel gets its scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/add/add.h"
#include "ops/attention/attention.h"
#include "ops/conv1d_silu/conv1d_silu.h"
#include "ops/embed/embed.h"
#include "ops/expert_linear/expert_linear.h"
#include "ops/expert_sort/expert_sort.h"
#include "ops/gated_rms_norm/gated_rms_norm.h"
#include "ops/gather_rows/gather_rows.h"
#include "ops/gdn_gates/gdn_gates.h"
#include "ops/gdn_scan/gdn_scan.h"
#include "ops/kv_append/kv_append.h"
#include "ops/linear/linear.h"
#include "ops/moe_combine/moe_combine.h"
#include "ops/probe/probe.h"
#include "ops/qk_l2norm/qk_l2norm.h"
#include "ops/qk_norm_rope/qk_norm_rope.h"
#include "ops/quantize_rows/quantize_rows.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/router_topk/router_topk.h"
#include "ops/sigmoid_gate/sigmoid_gate.h"
#include "ops/silu_mul/silu_mul.h"

namespace lily::ops {

/// Memory of one worker thread, 64-byte aligned, undefined contents.
struct CpuScratch {
  std::byte* data;
  std::size_t bytes;
};
inline constexpr std::size_t kCpuScratchBytes = std::size_t(4) << 20;

/// An op on the CPU: `units` independent pieces of work, any of which may run on any thread in any order. How the work is cut
/// depends on the args alone (never on the thread count), so results do not depend on the threads.
template <class Args>
struct CpuKernel {
  std::int64_t (*units)(const Args&);
  void (*run)(const Args&, std::int64_t begin, std::int64_t end, CpuScratch&);
};

struct CpuKernels {
  const char* isa;  // "avx2", "avxvnni", "avx512vnni", "avx512amx", "neon", "neon_dotprod"
  CpuKernel<EmbedArgs> embed;
  CpuKernel<RmsNormArgs> rms_norm;
  CpuKernel<QuantizeRowsArgs> quantize_rows;
  CpuKernel<LinearArgs> linear;  // and linear_add
  CpuKernel<Conv1dSiluArgs> conv1d_silu;
  CpuKernel<GdnGatesArgs> gdn_gates;
  CpuKernel<QkL2NormArgs> qk_l2norm;
  CpuKernel<GdnScanArgs> gdn_scan;
  CpuKernel<GatedRmsNormArgs> gated_rms_norm;
  CpuKernel<QkNormRopeArgs> qk_norm_rope;
  CpuKernel<KvAppendArgs> kv_append;
  CpuKernel<AttentionArgs> attention;
  CpuKernel<SigmoidGateArgs> sigmoid_gate;
  CpuKernel<RouterTopkArgs> router_topk;
  CpuKernel<ExpertSortArgs> expert_sort;
  CpuKernel<ExpertLinearArgs> expert_linear;
  CpuKernel<ExpertInArgs> expert_in;
  CpuKernel<ExpertOutArgs> expert_out;
  CpuKernel<SiluMulArgs> silu_mul;
  CpuKernel<MoeCombineArgs> moe_combine;
  CpuKernel<AddArgs> add;
  CpuKernel<GatherRowsArgs> gather_rows;
  CpuProbe probe;
};

}  // namespace lily::ops
