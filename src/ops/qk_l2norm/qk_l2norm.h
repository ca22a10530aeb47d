// qk_l2norm: reads qkv; writes qkv (in place; v is untouched).
#pragma once
#include "ops/pass.h"

namespace lily::ops {
/// Each head of q: q/sqrt(Σq² + 1e-6)/sqrt(dim); each head of k: k/sqrt(Σk² + 1e-6). In float32.
struct QkL2NormArgs {
  float* qkv;  // [rows, stride]: q heads, then k heads, then v
  int rows, stride, heads, dim;  // heads: key heads
};
QkL2NormArgs bind_qk_l2norm(const plan::Op& op, const Pass& pass);
void qk_l2norm_ref(const QkL2NormArgs& a);
}  // namespace lily::ops
