// The numbers that define a model of the family: what config.json says, checked, with nothing defaulted.
#pragma once

#include <cstdint>
#include <vector>

namespace lily {

enum class LayerKind { gated_deltanet, full_attention };

struct ModelShape {
  int hidden = 0;      // H: width of the residual stream
  int layers = 0;
  int vocab = 0;
  int max_context = 0;  // max_position_embeddings
  float rms_eps = 0;
  bool tied_embeddings = false;  // lm_head is embed_tokens
  std::vector<LayerKind> layer_kinds;

  // Full attention (grouped-query)
  int attn_heads = 0, kv_heads = 0, head_dim = 0;
  int rotary_dim = 0;  // channels of a head that rotate: head_dim * partial_rotary_factor, halves paired (NeoX)
  double rope_theta = 0;

  // Gated DeltaNet
  int gdn_key_heads = 0, gdn_value_heads = 0, gdn_key_dim = 0, gdn_value_dim = 0;  // *_dim is per head
  int conv_kernel = 0;

  // Mixture of experts
  int experts = 0, experts_per_token = 0, expert_ffn = 0, shared_ffn = 0;

  int key_width() const { return gdn_key_heads * gdn_key_dim; }        // 2048 in the 35B
  int value_width() const { return gdn_value_heads * gdn_value_dim; }  // 4096
  int conv_channels() const { return 2 * key_width() + value_width(); }  // q, k and v together: 8192
  int attn_width() const { return attn_heads * head_dim; }             // 4096
  int kv_width() const { return kv_heads * head_dim; }                 // 512
  int count(LayerKind kind) const {
    int n = 0;
    for (LayerKind k : layer_kinds) n += k == kind;
    return n;
  }
  /// Position of `layer` among the layers of its own kind: where its state lies.
  int index_in_kind(int layer) const {
    int n = 0;
    for (int i = 0; i < layer; ++i) n += layer_kinds[i] == layer_kinds[layer];
    return n;
  }
};

}  // namespace lily
