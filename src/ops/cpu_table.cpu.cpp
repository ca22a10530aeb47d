// This instruction set's kernel table. Compiled once for each set, like every *.cpu.cpp.
#include "ops/cpu_kernels.h"

#define LILY_KERNEL(op, Args)                 \
  std::int64_t op##_units(const Args&);       \
  void op##_run(const Args&, std::int64_t, std::int64_t, CpuScratch&);

// Sets of which some kernels differ from another's take the rest from there (ops.cmake).
#if defined(LILY_AMX)
#define LILY_REST avx512vnni
#else
#define LILY_REST LILY_ISA
#endif

namespace lily::ops::LILY_REST {
LILY_KERNEL(embed, EmbedArgs)
LILY_KERNEL(rms_norm, RmsNormArgs)
LILY_KERNEL(quantize_rows, QuantizeRowsArgs)
LILY_KERNEL(conv1d_silu, Conv1dSiluArgs)
LILY_KERNEL(gdn_gates, GdnGatesArgs)
LILY_KERNEL(qk_l2norm, QkL2NormArgs)
LILY_KERNEL(gdn_scan, GdnScanArgs)
LILY_KERNEL(gated_rms_norm, GatedRmsNormArgs)
LILY_KERNEL(qk_norm_rope, QkNormRopeArgs)
LILY_KERNEL(kv_append, KvAppendArgs)
LILY_KERNEL(sigmoid_gate, SigmoidGateArgs)
LILY_KERNEL(router_topk, RouterTopkArgs)
LILY_KERNEL(expert_sort, ExpertSortArgs)
LILY_KERNEL(silu_mul, SiluMulArgs)
LILY_KERNEL(moe_combine, MoeCombineArgs)
LILY_KERNEL(add, AddArgs)
LILY_KERNEL(gather_rows, GatherRowsArgs)
std::int64_t probe_int8_ops(std::int64_t);
std::uint64_t probe_read(const std::byte*, std::size_t);
}  // namespace lily::ops::LILY_REST

namespace lily::ops::LILY_ISA {
LILY_KERNEL(linear, LinearArgs)
LILY_KERNEL(attention, AttentionArgs)
LILY_KERNEL(expert_linear, ExpertLinearArgs)
LILY_KERNEL(expert_in, ExpertInArgs)
LILY_KERNEL(expert_out, ExpertOutArgs)
using namespace LILY_REST;

#define LILY_STRINGIZE(x) #x
#define LILY_NAME_OF(x) LILY_STRINGIZE(x)
#define LILY_ROW(op) .op = {op##_units, op##_run}

extern const CpuKernels kernels;
const CpuKernels kernels = {
    .isa = LILY_NAME_OF(LILY_ISA),
    LILY_ROW(embed), LILY_ROW(rms_norm), LILY_ROW(quantize_rows), LILY_ROW(linear), LILY_ROW(conv1d_silu),
    LILY_ROW(gdn_gates), LILY_ROW(qk_l2norm), LILY_ROW(gdn_scan), LILY_ROW(gated_rms_norm), LILY_ROW(qk_norm_rope),
    LILY_ROW(kv_append), LILY_ROW(attention), LILY_ROW(sigmoid_gate), LILY_ROW(router_topk), LILY_ROW(expert_sort),
    LILY_ROW(expert_linear), LILY_ROW(expert_in), LILY_ROW(expert_out), LILY_ROW(silu_mul), LILY_ROW(moe_combine),
    LILY_ROW(add), LILY_ROW(gather_rows),
    .probe = {probe_int8_ops, probe_read},
};
}  // namespace lily::ops::LILY_ISA
