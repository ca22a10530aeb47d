// The files of a synthetic checkpoint: shards written in parallel chunks, resumable by whole shards.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/output_file.h"
#include "base/progress.h"
#include "checkpoint/checkpoint.h"
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

/// Whether `path` is this shard, complete: header and size to the byte, and of every tensor its first and last
/// elements. A shard gets its name only after all of it was flushed, so more need not be read.
bool is_complete(const fs::path& path, const Shard& shard) {
  if (!fs::exists(path)) return false;
  const MappedFile file(path);
  if (file.size() != shard.bytes || std::memcmp(file.data(), shard.header.data(), shard.header.size()) != 0)
    return false;
  constexpr std::int64_t kSample = 256;
  std::byte expected[kSample * 8];
  std::uint64_t at = shard.header.size();
  for (const SyntheticTensor* t : shard.tensors) {
    const std::int64_t n = t->elements(), size = std::int64_t(dtype_bytes(t->dtype));
    for (std::int64_t begin : {std::int64_t(0), std::max<std::int64_t>(0, n - kSample)}) {
      const std::int64_t end = std::min(n, begin + kSample);
      fill_synthetic(*t, begin, end, expected);
      if (std::memcmp(file.data() + at + std::uint64_t(begin * size), expected, std::size_t((end - begin) * size)) != 0)
        return false;
    }
    at += std::uint64_t(t->bytes());
  }
  return true;
}

void write_all(int fd, const void* data, std::size_t bytes, std::uint64_t offset, const fs::path& path) {
  const char* p = static_cast<const char*>(data);
  while (bytes) {
    const ssize_t n = ::pwrite(fd, p, bytes, off_t(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(path, "cannot write", n < 0 ? errno : ENOSPC);
    p += n;
    offset += std::uint64_t(n);
    bytes -= std::size_t(n);
  }
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

void write_chunks(int fd, const fs::path& path, const Shard& shard, int threads, Progress& progress) {
  const std::vector<Chunk> chunks = cut_into_chunks(shard);
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto work = [&] {
    try {
      std::vector<std::byte> buffer;
      for (std::size_t i; (i = next++) < chunks.size();) {
        const Chunk& chunk = chunks[i];
        buffer.resize(std::size_t(chunk.end - chunk.begin) * dtype_bytes(chunk.tensor->dtype));
        fill_synthetic(*chunk.tensor, chunk.begin, chunk.end, buffer.data());
        write_all(fd, buffer.data(), buffer.size(), chunk.offset, path);
        progress.add(buffer.size());
      }
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
      next = chunks.size();
    }
  };
  std::vector<std::thread> pool;
  for (int i = 1; i < threads; ++i) pool.emplace_back(work);
  work();
  for (std::thread& thread : pool) thread.join();
  if (failure) std::rethrow_exception(failure);
}

void write_shard(const fs::path& dir, const Shard& shard, int threads, Progress& progress) {
  const fs::path path = dir / shard.name;
  fs::path partial = path;
  partial += ".partial";
  const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail(partial, "cannot create", errno);
  try {
    write_all(fd, shard.header.data(), shard.header.size(), 0, partial);
    write_chunks(fd, partial, shard, threads, progress);
    if (::fsync(fd) != 0) fail(partial, "cannot flush", errno);
  } catch (...) {
    ::close(fd);
    ::unlink(partial.c_str());
    throw;
  }
  if (::close(fd) != 0) fail(partial, "cannot close", errno);
  std::error_code error;
  fs::rename(partial, path, error);
  if (error) fail(path, "cannot rename into place", error.value());
}

/// A directory is used when it is new, empty, or holds (part of) this very checkpoint.
void claim_directory(const fs::path& out, const std::string& config_text, const std::vector<Shard>& shards) {
  std::error_code error;
  fs::create_directories(out, error);
  if (error) fail(out, "cannot create", error.value());
  const fs::path config = out / "config.json";
  if (fs::exists(config) && read_text_file(config) != config_text)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: holds another model's config.json; choose another directory", out.string()));
  for (const auto& entry : fs::directory_iterator(out)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string name = entry.path().filename().string();
    const bool ours = std::any_of(shards.begin(), shards.end(), [&](const Shard& s) { return s.name == name; });
    if (!ours)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: is not part of this checkpoint; choose another directory", entry.path().string()));
  }
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

void write_text_file(const fs::path& given, std::string_view text) {
  const fs::path path = output_path(given);
  fs::path partial = path;
  partial += ".partial";
  const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail(partial, "cannot create", errno);
  try {
    write_all(fd, text.data(), text.size(), 0, partial);
    if (::fsync(fd) != 0) fail(partial, "cannot flush", errno);
  } catch (...) {
    ::close(fd);
    ::unlink(partial.c_str());
    throw;
  }
  ::close(fd);
  std::error_code error;
  fs::rename(partial, path, error);
  if (error) fail(path, "cannot rename into place", error.value());
}

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
        fmt::format("continuing: {} of {} shards were complete", shards.size() - todo.size(), shards.size()));

  Progress progress("synth", result.bytes, options.progress);
  progress.skip(result.reused_bytes);
  for (const Shard* shard : todo) {
    progress.add(shard->header.size());
    write_shard(out, *shard, std::max(1, options.threads), progress);
  }
  progress.finish();
  return result;
}

}  // namespace lily
