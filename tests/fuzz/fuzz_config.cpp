// libFuzzer target: config.json. Whatever comes in, parse_config either throws lily::Error or returns a shape whose sizes can
// be computed without overflow (the target is built with the undefined-behaviour sanitizer).
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "model/config.h"
#include "model/state.h"
#include "model/synthetic.h"
#include "model/tensor_table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const lily::ModelConfig config = lily::parse_config({reinterpret_cast<const char*>(data), size}, "fuzz");
    const lily::ModelShape& shape = config.shape;
    if (shape.layer_kinds.size() != std::size_t(shape.layers) || shape.rotary_dim < 2 || shape.rotary_dim > shape.head_dim) std::abort();
    if (shape.experts_per_token > shape.experts || shape.attn_heads % shape.kv_heads) std::abort();
    const lily::StateLayout layout(shape, lily::DType::f32);
    if (layout.kv_block_bytes < 0 || layout.recurrent_bytes() < 0) std::abort();
    std::int64_t bytes = 0;
    for (const lily::TableEntry& entry : lily::expand_table(shape)) {
      const lily::Dims dims = entry.row->dims(shape);
      if (dims.count <= 0 || dims.rows <= 0 || dims.cols <= 0) std::abort();
      bytes += dims.count * dims.rows * dims.cols * 4;
    }
    if (bytes <= 0) std::abort();
    for (const lily::SyntheticTensor& t : lily::synthetic_tensors(config))
      if (t.bytes() <= 0) std::abort();
  } catch (const lily::Error&) {
  }
  return 0;
}
