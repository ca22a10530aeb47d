// A checkpoint directory: config.json and one or more safetensors shards, all of it looked at and none of it copied.
//
// The shard headers are the truth. model.safetensors.index.json is a hint: where it disagrees a warning is kept, and
// when a tensor that is needed is nowhere it tells which file should have had it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/input_file.h"
#include "checkpoint/safetensors.h"

namespace lily {

class Checkpoint {
 public:
  struct Tensor {
    const SafetensorsFile* file;
    const TensorInfo* info;
    const std::byte* data() const { return file->data(*info); }
    std::string file_name() const { return file->path().filename().string(); }
  };

  /// Opens `dir`. Files read: model*.safetensors and those the index names; without any of these, every *.safetensors.
  /// Error when there is no config.json or no shard, when a shard contradicts itself or its size, or when two shards
  /// hold a tensor of the same name.
  explicit Checkpoint(const std::filesystem::path& dir);

  const std::filesystem::path& dir() const { return dir_; }
  std::filesystem::path config_path() const { return dir_ / "config.json"; }
  const std::string& config_text() const { return config_text_; }
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }
  /// By shard, then by place in it.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* find(const std::string& name) const;
  const std::vector<std::string>& warnings() const { return warnings_; }
  std::uint64_t file_bytes() const;

  /// Why a tensor that ends in `suffix` may be absent: the shard which the index says holds it, and the bytes missing.
  /// Empty when the index knows nothing of it.
  std::string absence_hint(const std::string& suffix) const;

 private:
  void open_shards();
  void read_index();
  void compare_with_index();

  std::filesystem::path dir_;
  std::string config_text_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string, std::size_t> by_name_;
  std::unordered_map<std::string, std::string> index_;  // tensor -> shard, as the index file says
  std::uint64_t index_total_bytes_ = 0;
  std::vector<std::string> warnings_;
};

}  // namespace lily
