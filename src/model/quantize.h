// A plain (bf16, f16 or f32) checkpoint → an MLX affine one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/weights.h"

namespace lily {

/// Quantises one group of weights: codes (one a byte, below 2^bits) and the scale and bias as bfloat16 bits.
///
/// The rule is MLX's, so that both make the same checkpoint of the same weights: the end of the range that lies farther
/// from zero is met exactly and becomes the bias, the scale (negative when that end is the upper one) is set so that
/// zero falls on a code, and codes are taken with the scale before it is rounded, halves to even. The bytes equal those
/// of MLX 0.32's CPU back end; its Metal kernel rounds halves away from zero and starts the upper end at zero, which
/// changes a few codes in a thousand.
void quantize_group(std::span<const float> weights, int bits, std::uint8_t* codes, std::uint16_t* scale,
                    std::uint16_t* bias);

/// Packs codes as one little-endian bit string, low bits first: count * bits / 8 bytes.
void pack_codes(const std::uint8_t* codes, std::int64_t count, int bits, std::uint8_t* out);

struct QuantizeOptions {
  int bits = 4;
  int group = 64;
  bool progress = true;
  int threads = 2;
  std::uint64_t shard_bytes = std::uint64_t(4) << 30;
  std::function<bool()> stopped;  // asked between blocks; true ends it with Error(cancelled)
};
struct QuantizeResult {
  std::int64_t input_bytes = 0, output_bytes = 0;
  double bits_per_weight = 0;      // of the quantised matrices, scales and biases included
  std::vector<std::string> notes;  // what was dropped, which files were copied
};
/// Reads `in`, writes `out` (which must not exist, or be an empty directory). Rows are read, quantised and written in
/// blocks: memory holds one block and the scales of one tensor. Router and shared_expert_gate get 8 bits, as in the
/// published conversions; norms are stored as w; experts are split into switch_mlp; vision and mtp tensors are dropped
/// and said so. `out` appears when it is complete; an empty directory that is there is filled then, config.json last.
QuantizeResult quantize_checkpoint(const std::filesystem::path& in, const std::filesystem::path& out,
                                   const QuantizeOptions& options = {});

}  // namespace lily
