#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace lily {
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
    : file_(path) {
  const std::string header = header_bytes(entries, metadata);
  left_ = header.size();
  for (const Entry& entry : entries) left_ += data_bytes(entry);
  write(header.data(), header.size());
}

void SafetensorsWriter::write(const void* data, std::size_t bytes) {
  if (bytes > left_)
    throw Error(ErrorCode::internal,
                fmt::format("{}: {} bytes given where {} are left", file_.path().string(), bytes, left_));
  file_.write_at(written_, data, bytes);
  written_ += bytes;
  left_ -= bytes;
}

void SafetensorsWriter::finish() {
  if (left_)
    throw Error(ErrorCode::internal, fmt::format("{}: {} bytes were never given", file_.path().string(), left_));
  file_.finish();
}

}  // namespace lily
