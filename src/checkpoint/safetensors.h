// The safetensors container: 8 bytes of header length (little-endian), a JSON header, then the tensors' bytes.
//
// The header is hostile input: every number in it is checked against the file before anything is touched, and a
// contradiction is an Error that names file, tensor, expected and found. Reading maps the file and copies nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/mapped_file.h"
#include "base/output_file.h"

namespace lily {

/// What the header says of one tensor. `dtype` is empty for element types this engine has no use for (BOOL, F8_E4M3,
/// …); their sizes are checked all the same.
struct TensorInfo {
  std::string name;
  std::optional<DType> dtype;
  std::string dtype_text;  // as spelt in the header
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  // from the beginning of the file
  std::uint64_t bytes = 0;
};
/// "BF16 [8192, 4, 1]"
std::string describe(const TensorInfo& tensor);
std::string shape_text(const std::vector<std::int64_t>& shape);

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // by offset
  std::map<std::string, std::string> metadata;
};

/// Parses and checks a header. `head` is the beginning of the file (all of it, or at least the header), `file_size` the
/// size of the whole file, `name` what messages call it.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> head, std::uint64_t file_size,
                                           const std::string& name);

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100u << 20;  // bytes; the largest real ones are below 1 MB

/// A mapped file with its header.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return file_->path(); }
  std::uint64_t size() const { return file_->size(); }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const TensorInfo* find(std::string_view name) const;  // null when there is none
  const TensorInfo& at(std::string_view name) const;    // Error(not_found)
  const std::byte* data(const TensorInfo& tensor) const { return file_->data() + tensor.offset; }
  const std::shared_ptr<const MappedFile>& file() const { return file_; }

 private:
  std::shared_ptr<const MappedFile> file_;
  SafetensorsHeader header_;
};

/// Writes a file front to back: the tensors are declared first (that fixes the header), then their bytes are given in
/// that order in pieces of any size. The file appears under its name only when finish() succeeds.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    DType dtype;
    std::vector<std::int64_t> shape;
  };
  /// `expected` order is the order of the bytes to come.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<Entry> entries,
                    const std::map<std::string, std::string>& metadata = {});
  void write(const void* data, std::size_t bytes);
  void finish();  // Error(internal) when bytes are missing; flushes, then renames into place

  /// The bytes of a header for `entries`, length field included, padded to 64 so that tensor data is aligned.
  static std::string header_bytes(const std::vector<Entry>& entries,
                                  const std::map<std::string, std::string>& metadata);
  static std::uint64_t data_bytes(const Entry& entry);

 private:
  OutputFile file_;
  std::uint64_t written_ = 0, left_ = 0;
};

}  // namespace lily
