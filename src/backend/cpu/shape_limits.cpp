#include "backend/cpu/shape_limits.h"

#include <fmt/format.h>

#include "base/error.h"
#include "ops/cpu_kernels.h"
#include "ops/gdn_scan/gdn_scan.h"

namespace lily {
namespace {

[[noreturn]] void refuse(const std::string& what, std::int64_t found, const std::string& most) {
  throw Error(ErrorCode::unsupported,
              fmt::format("config.json: {} is {}, and the CPU back end takes {} at most; --backend reference takes more", what, found, most));
}

}  // namespace

void require_cpu_fit(const ModelShape& s) {
  const std::pair<const char*, int> columns[] = {
      {"hidden_size", s.hidden},
      {"num_attention_heads · head_dim", s.attn_width()},
      {"linear_num_value_heads · linear_value_head_dim", s.value_width()},
      {"moe_intermediate_size", s.expert_ffn},
      {"shared_expert_intermediate_size", s.shared_ffn},
  };
  for (const auto& [what, n] : columns)
    if (n > kMostCpuColumns) refuse(what, n, fmt::format("{}", kMostCpuColumns));
  const std::int64_t scan = ops::gdn_scan_scratch_bytes(s.gdn_key_dim, s.gdn_value_dim);
  if (scan > std::int64_t(ops::kCpuScratchBytes))
    refuse(fmt::format("the state of a linear attention head (linear_key_head_dim {}, linear_value_head_dim {}) with its tokens", s.gdn_key_dim, s.gdn_value_dim), scan,
           fmt::format("{} bytes", ops::kCpuScratchBytes));
}

}  // namespace lily
