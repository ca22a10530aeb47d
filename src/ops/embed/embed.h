// embed: reads ids; writes x. weights: embed_tokens.
#pragma once
#include "ops/pass.h"

namespace lily::ops {
/// x[r][0…width) = row ids[r] of the table, dequantised to float32.
struct EmbedArgs {
  const std::int32_t* ids;  // [rows], each in [0, table.rows)
  Matrix table;             // [vocab, width]
  float* x;                 // [rows, width]
  int rows, width;
};
EmbedArgs bind_embed(const plan::Op& op, const Pass& pass);
void embed_ref(const EmbedArgs& a);
}  // namespace lily::ops
