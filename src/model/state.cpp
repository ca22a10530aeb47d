#include "model/state.h"

#include <fmt/format.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstring>
#include <new>

#include "base/error.h"

namespace lily {

constexpr std::int64_t kHugePage = std::int64_t(2) << 20;

StateLayout::StateLayout(const ModelShape& shape, DType type)
    : kv_type(type),
      kv_heads(shape.kv_heads),
      head_dim(shape.head_dim),
      attention_layers(shape.count(LayerKind::full_attention)),
      gdn_layers(shape.count(LayerKind::gated_deltanet)) {
  if (type != DType::bf16 && type != DType::f32)
    throw Error(ErrorCode::internal, fmt::format("KV in {}: expected BF16 or F32", dtype_name(type)));
  recurrent_floats = std::int64_t(shape.gdn_value_heads) * shape.gdn_key_dim * shape.gdn_value_dim;
  conv_floats = std::int64_t(shape.conv_kernel - 1) * shape.conv_channels();
  kv_head_bytes = std::int64_t(kKvBlockTokens) * key_words() * 4;
  kv_layer_bytes = 2 * kv_heads * kv_head_bytes;
  kv_block_bytes = attention_layers * kv_layer_bytes;
}

KvBlock::KvBlock(std::int64_t bytes) : bytes_(bytes), alignment_(bytes >= kHugePage ? std::size_t(kHugePage) : 64) {
  // A model without attention layers has blocks of no bytes; they still count positions.
  const auto size = std::size_t(std::max<std::int64_t>(bytes, 1));
  data_ = static_cast<std::byte*>(::operator new(size, std::align_val_t(alignment_), std::nothrow));
  if (!data_) throw Error(ErrorCode::out_of_memory, fmt::format("no memory for a KV block of {} bytes", bytes));
#if defined(__linux__)
  if (bytes >= kHugePage) madvise(data_, size, MADV_HUGEPAGE);  // a wish: decode reads all of it for every token
#endif
}

KvBlock::~KvBlock() {
  ::operator delete(data_, std::align_val_t(alignment_));
}

SequenceState::SequenceState(const StateLayout& l) : layout(l) {
  try {
    recurrent.recurrent.resize(std::size_t(l.gdn_layers * l.recurrent_floats));
    recurrent.conv.resize(std::size_t(l.gdn_layers * l.conv_floats));
  } catch (const std::exception&) {  // bad_alloc, or length_error for sizes beyond any vector
    throw Error(ErrorCode::out_of_memory,
                fmt::format("no memory for a recurrent state of {} bytes", l.recurrent_bytes()));
  }
}

void SequenceState::reserve(std::int64_t tokens) {
  const auto needed = std::size_t(kv_blocks(tokens));
  // Blocks from the one that position `length` lies in are about to be written: what others share of them is copied
  // (the part that is in use) or replaced. Blocks before it are complete and stay shared for ever.
  const auto first_written = std::size_t(length / kKvBlockTokens);
  if (tokens > length) {
    for (std::size_t i = first_written; i < blocks.size(); ++i) {
      if (blocks[i].use_count() == 1) continue;
      auto own = std::make_shared<KvBlock>(layout.kv_block_bytes);
      if (std::int64_t(i) * kKvBlockTokens < length)
        std::memcpy(own->data(), blocks[i]->data(), std::size_t(layout.kv_block_bytes));
      blocks[i] = std::move(own);
      block_data[i] = blocks[i]->data();
    }
  }
  while (blocks.size() < needed) {
    blocks.push_back(std::make_shared<KvBlock>(layout.kv_block_bytes));
    block_data.push_back(blocks.back()->data());
  }
}

void SequenceState::reset() {
  length = 0;
  std::fill(recurrent.recurrent.begin(), recurrent.recurrent.end(), 0.0f);
  std::fill(recurrent.conv.begin(), recurrent.conv.end(), 0.0f);
  blocks.clear();
  block_data.clear();
}

}  // namespace lily
