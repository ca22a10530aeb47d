#include "base/output_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"

namespace lily {
namespace {

TEST(OutputFile, ReplacesFilesAndNothingElse) {
  const std::filesystem::path dir = std::filesystem::temp_directory_path();
  const std::filesystem::path file = dir / "lily-output-file-test";
  std::ofstream(file) << "old";
  EXPECT_NO_THROW(check_replaceable(file));
  std::filesystem::remove(file);
  EXPECT_NO_THROW(check_replaceable(file));
  EXPECT_THROW(check_replaceable("/dev/null"), Error);
  EXPECT_THROW(check_replaceable(dir), Error);
}

}  // namespace
}  // namespace lily
