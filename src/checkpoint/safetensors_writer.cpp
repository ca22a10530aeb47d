#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "base/output_file.h"
#include "checkpoint/safetensors.h"

namespace lily {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* what, int error) {
  throw Error(ErrorCode::io, fmt::format("{}: {}: {}", path.string(), what, std::generic_category().message(error)));
}

}  // namespace

std::uint64_t SafetensorsWriter::data_bytes(const Entry& entry) {
  std::uint64_t bytes = dtype_bytes(entry.dtype);
  for (std::int64_t dim : entry.shape) bytes *= std::uint64_t(dim);
  return bytes;
}

std::string SafetensorsWriter::header_bytes(const std::vector<Entry>& entries,
                                            const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t at = 0;
  for (const Entry& entry : entries) {
    const std::uint64_t end = at + data_bytes(entry);
    header.push_back(
        {entry.name, {{"dtype", dtype_name(entry.dtype)}, {"shape", entry.shape}, {"data_offsets", {at, end}}}});
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');
  std::string out(8, '\0');
  for (int i = 0; i < 8; ++i) out[i] = char(std::uint64_t(text.size()) >> (8 * i));
  return out + text;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<Entry> entries,
                                     const std::map<std::string, std::string>& metadata)
    : path_(output_path(path)), temporary_(path_) {
  temporary_ += ".partial";
  for (const Entry& entry : entries) left_ += data_bytes(entry);
  out_ = std::fopen(temporary_.c_str(), "wb");
  if (!out_) fail(temporary_, "cannot create", errno);
  const std::string header = header_bytes(entries, metadata);
  if (std::fwrite(header.data(), 1, header.size(), out_) != header.size()) fail(temporary_, "cannot write", errno);
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!out_) return;
  std::fclose(out_);
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
}

void SafetensorsWriter::write(const void* data, std::size_t bytes) {
  if (bytes > left_)
    throw Error(ErrorCode::internal, fmt::format("{}: {} bytes given where {} are left", path_.string(), bytes, left_));
  if (std::fwrite(data, 1, bytes, out_) != bytes) fail(temporary_, "cannot write", errno);
  left_ -= bytes;
}

void SafetensorsWriter::finish() {
  if (left_) throw Error(ErrorCode::internal, fmt::format("{}: {} bytes were never given", path_.string(), left_));
  if (std::fflush(out_) != 0 || ::fsync(::fileno(out_)) != 0) fail(temporary_, "cannot write", errno);
  const int closed = std::fclose(out_);
  out_ = nullptr;
  if (closed != 0) fail(temporary_, "cannot close", errno);
  std::error_code error;
  std::filesystem::rename(temporary_, path_, error);
  if (error) fail(path_, "cannot rename into place", error.value());
}

}  // namespace lily
