// The files of a synthetic checkpoint: shards written in parallel chunks, resumable by whole shards.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "base/input_file.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "checkpoint/safetensors.h"
#include "model/synthetic.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const char* what, int error) {
  throw Error(ErrorCode::io, fmt::format("{}: {}: {}", path.string(), what, std::generic_category().message(error)));
}

struct Shard {
  std::string name;
  std::string header;
  std::vector<const SyntheticTensor*> tensors;
  std::uint64_t bytes = 0;  // of the whole file
};

std::vector<Shard> plan_shards(const std::vector<SyntheticTensor>& tensors, std::uint64_t limit) {
  std::vector<Shard> shards(1);
  std::uint64_t filled = 0;
  for (const SyntheticTensor& t : tensors) {
    if (filled && filled + std::uint64_t(t.bytes()) > limit) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().tensors.push_back(&t);
    filled += std::uint64_t(t.bytes());
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    Shard& shard = shards[i];
    shard.name = shards.size() == 1 ? "model.safetensors"
                                    : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    std::vector<SafetensorsWriter::Entry> entries;
    for (const SyntheticTensor* t : shard.tensors) entries.push_back({t->name, t->dtype, t->shape});
    shard.header = SafetensorsWriter::header_bytes(entries, {{"format", "mlx"}});
    shard.bytes = shard.header.size();
    for (const SyntheticTensor* t : shard.tensors) shard.bytes += std::uint64_t(t->bytes());
  }
  return shards;
}

/// Whether elements [begin, end) of `t`, whose bytes begin at `data`, are what they must be.
bool is_as_made(const SyntheticTensor& t, const std::byte* data, std::int64_t begin, std::int64_t end) {
  const std::size_t size = dtype_bytes(t.dtype);
  std::vector<std::byte> expected(std::size_t(end - begin) * size);
  fill_synthetic(t, begin, end, expected.data());
  return std::memcmp(data + std::size_t(begin) * size, expected.data(), expected.size()) == 0;
}

/// Small tensors are compared as a whole, of larger ones some stretches from the first element to the last. A shard
/// gets its name only after all of it was flushed, so this looks for what was damaged since, not for what is
/// unfinished.
bool is_as_made(const SyntheticTensor& t, const std::byte* data) {
  constexpr std::int64_t kWholeBytes = 1 << 20, kSamples = 8, kSample = 256;
  const std::int64_t n = t.elements();
  if (t.bytes() <= kWholeBytes) return is_as_made(t, data, 0, n);
  for (std::int64_t i = 0; i < kSamples; ++i) {
    const std::int64_t begin = (n - kSample) / (kSamples - 1) * i;
    if (!is_as_made(t, data, begin, begin + kSample)) return false;
  }
  return is_as_made(t, data, n - kSample, n);
}

/// Whether `path` is this shard, complete: header and size to the byte, and samples of every tensor.
bool is_complete(const fs::path& path, const Shard& shard) {
  if (!is_there(path)) return false;
  const MappedFile file(path);
  if (file.size() != shard.bytes || std::memcmp(file.data(), shard.header.data(), shard.header.size()) != 0)
    return false;
  const std::byte* at = file.data() + shard.header.size();
  for (const SyntheticTensor* t : shard.tensors) {
    if (!is_as_made(*t, at)) return false;
    at += t->bytes();
  }
  return true;
}

struct Chunk {
  const SyntheticTensor* tensor;
  std::int64_t begin, end;  // elements
  std::uint64_t offset;     // in the file
};

std::vector<Chunk> cut_into_chunks(const Shard& shard) {
  constexpr std::int64_t kChunkBytes = 4 << 20;
  std::vector<Chunk> chunks;
  std::uint64_t at = shard.header.size();
  for (const SyntheticTensor* t : shard.tensors) {
    const std::int64_t size = std::int64_t(dtype_bytes(t->dtype)), step = kChunkBytes / size;
    for (std::int64_t begin = 0; begin < t->elements(); begin += step)
      chunks.push_back({t, begin, std::min(begin + step, t->elements()), at + std::uint64_t(begin * size)});
    at += std::uint64_t(t->bytes());
  }
  return chunks;
}

void write_shard(const fs::path& dir, const Shard& shard, const SynthOptions& options, Progress& progress) {
  OutputFile file(dir / shard.name);
  file.write_at(0, shard.header.data(), shard.header.size());
  const std::vector<Chunk> chunks = cut_into_chunks(shard);
  std::atomic<std::size_t> next{0};
  run_on_threads(std::min(options.threads, int(chunks.size())), [&] {
    try {
      std::vector<std::byte> buffer;
      for (std::size_t i; (i = next++) < chunks.size();) {
        if (options.stopped && options.stopped()) throw Error(ErrorCode::cancelled, "stopped");
        const Chunk& chunk = chunks[i];
        buffer.resize(std::size_t(chunk.end - chunk.begin) * dtype_bytes(chunk.tensor->dtype));
        fill_synthetic(*chunk.tensor, chunk.begin, chunk.end, buffer.data());
        file.write_at(chunk.offset, buffer.data(), buffer.size());
        progress.add(buffer.size());
      }
    } catch (...) {
      next = chunks.size();  // the others need not go on
      throw;
    }
  });
  file.finish();
}

constexpr const char* kMark = "synth.json";

/// What tells a directory that synth made, and of which config.
std::string mark_text(const std::string& config_text) {
  return nlohmann::ordered_json{{"format", "lily-synth"}, {"config", fmt::format("{:016x}", fnv1a64(config_text))}}
             .dump() +
         "\n";
}

/// A directory is used when it is new, empty, or was made by synth of this very config: whatever else lies in it is
/// somebody's, and would be lost.
void claim_directory(const fs::path& out, const std::string& config_text, const std::vector<Shard>& shards) {
  std::error_code error;
  fs::create_directories(out, error);
  if (error) fail(out, "cannot create", error.value());
  const auto refuse = [](const fs::path& found, const char* what) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}; choose another directory", found.string(), what));
  };
  const bool marked = is_there(out / kMark);
  if (!marked && !fs::is_empty(out))
    refuse(out, "expected a new or empty directory, or one that synth made (with synth.json), found other files in it");
  if (marked && read_text_file(out / kMark) != mark_text(config_text))
    refuse(out / kMark, "the directory was made by synth of another config");
  if (is_there(out / "config.json") && read_text_file(out / "config.json") != config_text)
    refuse(out / "config.json", "is not the config that is wanted");
  for (const auto& entry : fs::directory_iterator(out)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string name = entry.path().filename().string();
    const bool ours = std::any_of(shards.begin(), shards.end(), [&](const Shard& s) { return s.name == name; });
    if (!ours) refuse(entry.path(), "is not part of this checkpoint");
  }
  if (!marked) write_text_file(out / kMark, mark_text(config_text));
}

void write_index(const fs::path& out, const std::vector<Shard>& shards) {
  if (shards.size() == 1) return;
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  std::uint64_t total = 0;
  for (const Shard& shard : shards)
    for (const SyntheticTensor* t : shard.tensors) {
      map.push_back({t->name, shard.name});
      total += std::uint64_t(t->bytes());
    }
  write_text_file(
      out / "model.safetensors.index.json",
      nlohmann::ordered_json{{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}}.dump(1) + "\n");
}

}  // namespace

SynthResult write_synthetic(const fs::path& out, const std::string& config_text, const std::string& config_name,
                            const SynthOptions& options) {
  const ModelConfig config = parse_config(config_text, config_name);
  const std::vector<SyntheticTensor> tensors = synthetic_tensors(config);
  const std::vector<Shard> shards = plan_shards(tensors, options.shard_bytes);
  claim_directory(out, config_text, shards);

  SynthResult result;
  result.notes = config.warnings;
  std::vector<const Shard*> todo;
  std::uint64_t todo_bytes = 0;
  for (const Shard& shard : shards) {
    result.bytes += shard.bytes;
    if (is_complete(out / shard.name, shard)) {
      result.reused_bytes += shard.bytes;
      continue;
    }
    todo.push_back(&shard);
    todo_bytes += shard.bytes;
  }
  std::error_code error;
  const fs::space_info space = fs::space(out, error);
  if (!error && space.available < todo_bytes)
    throw Error(ErrorCode::io, fmt::format("{}: {} bytes are to be written, {} are free on the disk", out.string(),
                                           todo_bytes, space.available));

  // The small files come first: should the run be interrupted, whoever loads the directory hears which shard is
  // missing.
  write_text_file(out / "config.json", config_text);
  write_index(out, shards);
  if (!write_synthetic_tokenizer(out, config.shape.vocab, config.shape.max_context))
    result.notes.push_back(fmt::format(
        "no tokenizer files: a vocabulary of {} has no room for 256 bytes and the control tokens", config.shape.vocab));
  if (result.reused_bytes)
    result.notes.push_back(
        fmt::format("continuing: {} of {} shards were complete (by size, header and samples of each tensor)",
                    shards.size() - todo.size(), shards.size()));

  Progress progress("synth", result.bytes, options.progress);
  progress.skip(result.reused_bytes);
  for (const Shard* shard : todo) {
    progress.add(shard->header.size());
    write_shard(out, *shard, options, progress);
  }
  progress.finish();
  return result;
}

}  // namespace lily
