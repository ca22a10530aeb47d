#include "base/output_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "temp_dir.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

TEST(OutputFile, ReplacesFilesAndNothingElse) {
  TempDir dir;
  const fs::path file = dir / "file";
  EXPECT_EQ(output_path(file), file);
  std::ofstream(file) << "old";
  EXPECT_EQ(output_path(file), file);
  EXPECT_THROW(output_path("/dev/null"), Error);
  EXPECT_THROW(output_path(dir.path()), Error);
}

TEST(OutputFile, LinksAreFollowed) {
  TempDir dir;
  fs::create_directory(dir / "sub");
  fs::create_symlink("sub/second", dir / "first");
  fs::create_symlink(dir / "target", dir / "sub" / "second");
  EXPECT_EQ(output_path(dir / "first"), dir / "target");  // though it is not there
  std::ofstream(dir / "target") << "old";
  EXPECT_EQ(output_path(dir / "first"), dir / "target");
  fs::create_symlink("/dev/null", dir / "device");
  EXPECT_THROW(output_path(dir / "device"), Error);
  fs::create_symlink("circle", dir / "circle");
  EXPECT_THROW(output_path(dir / "circle"), Error);
}

}  // namespace
}  // namespace lily
