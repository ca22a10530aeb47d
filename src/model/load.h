// A checkpoint directory → the model's weights, checked tensor by tensor against model/tensor_table.
//
// Weights stay where they are: views into the mapped shards. Owned are only the small vectors (widened to float32) and
// tensors whose place in the file is not a multiple of 4, which kernels could not read as words.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/config.h"
#include "model/weights.h"

namespace lily {

struct LoadOptions {
  bool mlock = false;  // read all weights in and pin them
};

/// What a person should know of a load.
struct LoadReport {
  std::vector<std::string> lines;     // files and bytes, skipped groups
  std::vector<std::string> warnings;  // things that are odd and were decided
  std::vector<std::filesystem::path> files;  // config.json and the shards: mapped while the model lives
  bool raw = false;                   // the checkpoint keeps Hugging Face's layout: norms were stored as w - 1
  std::int64_t file_bytes = 0;        // of all shards
  std::int64_t weight_bytes = 0;      // of the tensors the engine uses
  std::int64_t skipped_bytes = 0;     // vision and draft-head tensors, never touched
  int realigned_tensors = 0;          // copied because of their odd place in the file
  std::int64_t copied_bytes = 0;      // owned copies: widened vectors, realigned tensors
};

struct LoadedModel {
  ModelShape shape;
  Quantization quantization;
  Weights weights;
  LoadReport report;
};

LoadedModel load_model(const std::filesystem::path& dir, const LoadOptions& options = {});

}  // namespace lily
