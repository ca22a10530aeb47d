// A safetensors file that is written in any order, for results too large to hold: logits by row, hidden rows by layer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/output_file.h"
#include "checkpoint/safetensors.h"

namespace lily::cli {

/// Appears under its name only when finish() succeeds.
class TensorFile {
 public:
  /// A symbolic link at `path` is followed, and stays.
  TensorFile(const std::filesystem::path& path, std::vector<SafetensorsWriter::Entry> entries);
  /// `bytes` of tensor number `entry`, from `offset` on.
  void write(std::size_t entry, std::uint64_t offset, const void* data, std::size_t bytes);
  void finish() { file_.finish(); }

 private:
  OutputFile file_;
  std::vector<std::uint64_t> offsets_;  // of each tensor in the file, and the end
};

}  // namespace lily::cli
