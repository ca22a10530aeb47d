// A safetensors file that is written in any order, for results too large to hold: logits by row, hidden rows by layer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace lily::cli {

/// Appears under its name only when finish() succeeds.
class TensorFile {
 public:
  /// A symbolic link at `path` is followed, and stays.
  TensorFile(const std::filesystem::path& path, std::vector<SafetensorsWriter::Entry> entries);
  ~TensorFile();  // without finish(): the unfinished file is removed
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;
  /// `bytes` of tensor number `entry`, from `offset` on.
  void write(std::size_t entry, std::uint64_t offset, const void* data, std::size_t bytes);
  void finish();

 private:
  [[noreturn]] void fail(const char* doing) const;
  void write_at(std::uint64_t offset, const void* data, std::size_t bytes);

  std::filesystem::path path_, temporary_;
  std::vector<std::uint64_t> offsets_;  // of each tensor in the file, and the end
  int file_ = -1;
};

}  // namespace lily::cli
