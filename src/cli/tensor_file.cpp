#include "cli/tensor_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/output_file.h"

namespace lily::cli {

TensorFile::TensorFile(const std::filesystem::path& path, std::vector<SafetensorsWriter::Entry> entries)
    : path_(output_path(path)), temporary_(path_.string() + fmt::format(".{}.part", ::getpid())) {
  const std::string header = SafetensorsWriter::header_bytes(entries, {});
  std::uint64_t at = header.size();
  for (const auto& e : entries) {
    offsets_.push_back(at);
    at += SafetensorsWriter::data_bytes(e);
  }
  offsets_.push_back(at);
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ < 0) fail("creating");
  write_at(0, header.data(), header.size());
}

TensorFile::~TensorFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

void TensorFile::fail(const char* doing) const {
  throw Error(ErrorCode::io, fmt::format("{}: {} it failed: {}", path_.string(), doing, std::strerror(errno)));
}

void TensorFile::write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(file_, from, bytes, off_t(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("writing");
    from += n;
    offset += std::uint64_t(n);
    bytes -= std::size_t(n);
  }
}

void TensorFile::write(std::size_t entry, std::uint64_t offset, const void* data, std::size_t bytes) {
  if (offsets_[entry] + offset + bytes > offsets_[entry + 1]) {
    throw Error(ErrorCode::internal,
                fmt::format("{}: tensor {} is smaller than what is written to it", path_.string(), entry));
  }
  write_at(offsets_[entry] + offset, data, bytes);
}

void TensorFile::finish() {
  if (::fsync(file_) != 0 && errno != EINVAL) fail("writing");
  ::close(file_);
  file_ = -1;
  std::error_code ec;
  std::filesystem::rename(temporary_, path_, ec);
  if (ec) {
    ::unlink(temporary_.c_str());
    throw Error(ErrorCode::io, fmt::format("{}: {}", path_.string(), ec.message()));
  }
}

}  // namespace lily::cli
