// Synthetic checkpoints: every tensor comes from a counter-based hash of its name, so two implementations build the
// same bytes. They have the real shapes and no meaning: for speed tests and for comparing implementations without a
// download.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "model/config.h"

namespace lily {

std::uint64_t fnv1a64(std::string_view text);
/// Value `index` of the stream `key`: the finaliser of splitmix64 on a counter.
constexpr std::uint64_t synthetic_hash(std::uint64_t key, std::uint64_t index) {
  std::uint64_t z = key + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
/// The test prompt of `seed`: n ids below vocab.
std::vector<int> synthetic_token_ids(std::string_view seed, int n, int vocab);

/// One tensor of a synthetic checkpoint, and how its values come about.
struct SyntheticTensor {
  enum class Values { codes, scales, biases, plain };
  std::string name;  // in the file
  DType dtype = DType::u32;
  std::vector<std::int64_t> shape;
  Values values = Values::codes;
  std::uint64_t key = 0;     // FNV-1a-64 of the module's name (quantised) or of the tensor's (plain)
  float scale = 0;           // scales, biases: gain / sqrt(in) / std of the codes
  float middle = 0;          // biases: (2^bits - 1) / 2
  float low = 0, width = 0;  // plain: low + width * u
  std::int64_t elements() const;
  std::int64_t bytes() const { return elements() * std::int64_t(dtype_bytes(dtype)); }
};
/// In the order they are written. Error when the config does not quantise all matrices: the formula knows no others.
std::vector<SyntheticTensor> synthetic_tensors(const ModelConfig& config);
/// Elements [begin, end) of `tensor`, as stored, to `out`.
void fill_synthetic(const SyntheticTensor& tensor, std::int64_t begin, std::int64_t end, std::byte* out);

/// The config.json of a preset; Error names the presets there are.
std::string preset_config(std::string_view name);

struct SynthOptions {
  bool progress = true;
  int threads = 2;
  std::uint64_t shard_bytes = 1u << 30;  // a shard is closed when the next tensor would make it larger
  std::function<bool()> stopped;         // asked between pieces, from any thread; true ends it with Error(cancelled)
};
struct SynthResult {
  std::uint64_t bytes = 0;         // of all shards
  std::uint64_t reused_bytes = 0;  // of shards found complete from an earlier run
  std::vector<std::string> notes;  // worth a line to the user
};
/// Writes the checkpoint that `config_text` describes, tokenizer files included, into a directory that is new,
/// empty or its own of the same config (synth.json says so). A run that was interrupted continues: complete shards are
/// checked and kept. `config_name` is what messages call the config.
SynthResult write_synthetic(const std::filesystem::path& out, const std::string& config_text,
                            const std::string& config_name, const SynthOptions& options = {});

/// tokenizer.json, tokenizer_config.json and generation_config.json for a vocabulary of `vocab` ids: 256 byte tokens,
/// control tokens (at their real ids where the vocabulary reaches them, else last) and fillers. False when `vocab` is
/// too small to hold a tokenizer; nothing is written then.
bool write_synthetic_tokenizer(const std::filesystem::path& dir, int vocab, int max_context);

}  // namespace lily
