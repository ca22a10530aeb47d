// A synthetic checkpoint of a golden's config, written once for the test program and removed afterwards.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/load.h"
#include "model/synthetic.h"
#include "support/golden.h"

namespace lily::test {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

/// The model that config.json of tests/data/golden/<name> describes, with weights by formula, in a directory that lives as long
/// as this object.
class SyntheticModel {
 public:
  explicit SyntheticModel(const std::string& config_path)
      : dir_(std::filesystem::temp_directory_path() / ("lily-test-" + std::to_string(::getpid()) + "-" + std::to_string(count_++))) {
    write_synthetic(dir_, read_file(config_path), config_path, {.progress = false, .threads = 2});
    model_ = load_model(dir_);
  }
  ~SyntheticModel() {
    model_ = {};
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  SyntheticModel(const SyntheticModel&) = delete;
  SyntheticModel& operator=(const SyntheticModel&) = delete;
  const LoadedModel& operator*() const { return model_; }
  const LoadedModel* operator->() const { return &model_; }
  const std::filesystem::path& dir() const { return dir_; }

 private:
  static inline int count_ = 0;
  std::filesystem::path dir_;
  LoadedModel model_;
};

/// The golden checkpoint t1, made once a test program.
inline const SyntheticModel& t1_model() {
  static const SyntheticModel model(golden_path("t1/config.json"));
  return model;
}

}  // namespace lily::test
