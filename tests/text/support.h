// Helpers of the text tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

namespace lily::test {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

inline nlohmann::ordered_json data_json(const std::string& name) {
  return nlohmann::ordered_json::parse(read_file(std::filesystem::path(LILY_TEST_DATA) / "text" / name));
}

/// Files too big for the tree; the environment variable LILY_SHARED, else ../shared beside the project.
inline std::filesystem::path shared_dir() {
  const char* set = std::getenv("LILY_SHARED");
  return set ? std::filesystem::path(set) : std::filesystem::path(LILY_SOURCE_DIR) / ".." / "shared";
}

inline std::filesystem::path qwen3_dir() {
  return shared_dir() / "tokenizer" / "qwen3";
}
inline std::filesystem::path tiny_dir() {
  return std::filesystem::path(LILY_SOURCE_DIR) / "models" / "tiny";
}

/// A directory that is gone at the end of the test.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lily-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  std::filesystem::path path_;
};

/// The splitmix64 sequence: small, seeded, the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  size_t below(size_t n) { return static_cast<size_t>(next() % n); }

 private:
  uint64_t state_;
};

}  // namespace lily::test

#define LILY_REQUIRE_QWEN3()                                                                       \
  if (!std::filesystem::exists(::lily::test::qwen3_dir() / "tokenizer.json")) {                    \
    GTEST_SKIP() << "needs " << ::lily::test::qwen3_dir() << "; set LILY_SHARED to its directory"; \
  }                                                                                                \
  static_assert(true)
