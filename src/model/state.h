// What a conversation leaves behind in the model: KV blocks of the attention layers, recurrent matrices and convolution
// windows of the Gated DeltaNet layers.
//
// KV grows with the conversation, never changes once written, and lies in blocks of kKvBlockTokens positions that are
// shared by reference count between conversations with a common beginning. The recurrent part has a fixed size and is
// overwritten by every token, so going back needs a copy (a snapshot) taken earlier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/half.h"
#include "model/shape.h"

namespace lily {

inline constexpr int kKvBlockTokens = 256;  // positions of one KV block; attention walks blocks aligned to it
/// Blocks that hold the first `tokens` positions.
constexpr std::int64_t kv_blocks(std::int64_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }
inline constexpr int kKvGroup = 16;          // keys that lie side by side in K

/// Sizes of the state of one model, derived from its shape and the KV element type.
struct StateLayout {
  StateLayout() = default;
  StateLayout(const ModelShape& shape, DType kv_type);
  DType kv_type = DType::bf16;   // bf16, or f32 with --exact
  int kv_heads = 0, head_dim = 0;
  int attention_layers = 0, gdn_layers = 0;
  std::int64_t recurrent_floats = 0;  // one layer: [value heads][key_dim][value_dim]
  std::int64_t conv_floats = 0;       // one layer: [conv_kernel - 1][conv_channels], oldest row first, before the convolution
  std::int64_t kv_head_bytes = 0;     // K (or V) of one head in a block, in 32-bit words: see k_index() and v_index()
  std::int64_t kv_layer_bytes = 0;    // one attention layer in a block: K of all heads, then V of all heads
  std::int64_t kv_block_bytes = 0;    // all attention layers
  std::int64_t recurrent_bytes() const {  // everything a snapshot copies
    return std::int64_t(gdn_layers) * (recurrent_floats + conv_floats) * std::int64_t(sizeof(float));
  }
  /// Offset of K (v = false) or V (v = true) of `head` of attention layer `a` in a block.
  std::int64_t kv_offset(int a, bool v, int head) const {
    return a * kv_layer_bytes + (std::int64_t(v) * kv_heads + head) * kv_head_bytes;
  }
  // A word of the cache is one float or two bf16: of K neighbouring channels of a key, of V one channel of neighbouring keys, so
  // that a vector of words has one key (K) or one channel (V) a lane, and pairs of 16 bits are what one dot product adds.
  LILY_ALWAYS_INLINE int word_values() const { return kv_type == DType::bf16 ? 2 : 1; }
  LILY_ALWAYS_INLINE int key_words() const { return (head_dim + word_values() - 1) / word_values(); }  // of a key; an odd last channel's other half is 0
  /// K is [kKvBlockTokens / kKvGroup][key_words][kKvGroup] words: the place of `channel` of the key in `slot`, in values.
  LILY_ALWAYS_INLINE std::int64_t k_index(int slot, int channel) const {
    const int n = word_values();
    return ((std::int64_t(slot / kKvGroup) * key_words() + channel / n) * kKvGroup + slot % kKvGroup) * n + channel % n;
  }
  /// V is [kKvBlockTokens / word_values][head_dim] words.
  LILY_ALWAYS_INLINE std::int64_t v_index(int slot, int channel) const {
    const int n = word_values();
    return (std::int64_t(slot / n) * head_dim + channel) * n + slot % n;
  }
};

/// One block of KV for all attention layers. 64-byte aligned, in huge pages where it is large; contents undefined until written.
class KvBlock {
 public:
  explicit KvBlock(std::int64_t bytes);
  ~KvBlock();
  KvBlock(const KvBlock&) = delete;
  KvBlock& operator=(const KvBlock&) = delete;
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_;
  std::size_t alignment_;
  std::byte* data_;
};

/// The fixed-size part: a value that can be copied (that is what a snapshot is).
struct RecurrentState {
  std::vector<float> recurrent;  // [gdn layers][recurrent_floats]
  std::vector<float> conv;       // [gdn layers][conv_floats]
};

/// The state of one conversation in host memory. `length` tokens have been absorbed.
struct SequenceState {
  explicit SequenceState(const StateLayout& layout);
  StateLayout layout;
  std::int64_t length = 0;
  RecurrentState recurrent;
  std::vector<std::shared_ptr<KvBlock>> blocks;
  std::vector<std::byte*> block_data;  // blocks[i]->data(), what kernels index

  /// Makes room for `tokens` positions; a last block that is shared with another conversation is copied first.
  void reserve(std::int64_t tokens);
  void reset();  // as new: length 0, zero recurrent state, no blocks
  float* recurrent_of(int gdn_layer) { return recurrent.recurrent.data() + gdn_layer * layout.recurrent_floats; }
  float* conv_of(int gdn_layer) { return recurrent.conv.data() + gdn_layer * layout.conv_floats; }
};

}  // namespace lily
