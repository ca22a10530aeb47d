#include "cli/tensor_file.h"

#include <fmt/format.h>

#include "base/error.h"

namespace lily::cli {

TensorFile::TensorFile(const std::filesystem::path& path, std::vector<SafetensorsWriter::Entry> entries) : file_(path) {
  const std::string header = SafetensorsWriter::header_bytes(entries, {});
  std::uint64_t at = header.size();
  for (const auto& e : entries) {
    offsets_.push_back(at);
    at += SafetensorsWriter::data_bytes(e);
  }
  offsets_.push_back(at);
  file_.write_at(0, header.data(), header.size());
}

void TensorFile::write(std::size_t entry, std::uint64_t offset, const void* data, std::size_t bytes) {
  if (offsets_[entry] + offset + bytes > offsets_[entry + 1]) {
    throw Error(ErrorCode::internal,
                fmt::format("{}: tensor {} is smaller than what is written to it", file_.path().string(), entry));
  }
  file_.write_at(offsets_[entry] + offset, data, bytes);
}

}  // namespace lily::cli
