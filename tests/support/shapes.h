// Small model shapes for tests, with dimensions that differ from one another so that a mix-up shows.
#pragma once

#include "model/shape.h"

namespace lily::test {

/// 4 layers (3 Gated DeltaNet, 1 attention). All widths are multiples of 32 or 64 as the family's are.
inline ModelShape small_shape(int layers = 4) {
  ModelShape s;
  s.hidden = 192;
  s.layers = layers;
  s.vocab = 320;
  s.max_context = 4096;
  s.rms_eps = 1e-6f;
  for (int i = 0; i < layers; ++i)
    s.layer_kinds.push_back((i + 1) % 4 == 0 ? LayerKind::full_attention : LayerKind::gated_deltanet);
  s.attn_heads = 6;
  s.kv_heads = 2;
  s.head_dim = 64;
  s.rotary_dim = 16;
  s.rope_theta = 1e7;
  s.gdn_key_heads = 2;
  s.gdn_value_heads = 4;
  s.gdn_key_dim = 64;
  s.gdn_value_dim = 32;
  s.conv_kernel = 4;
  s.experts = 12;
  s.experts_per_token = 3;
  s.expert_ffn = 128;
  s.shared_ffn = 64;
  return s;
}

}  // namespace lily::test
