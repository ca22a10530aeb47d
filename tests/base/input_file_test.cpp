#include "base/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/mapped_file.h"
#include "temp_dir.h"

namespace lily {
namespace {

template <class Use>
std::string error_of(Use use) {
  try {
    use();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(InputFile, AbsentIsNotBroken) {
  TempDir dir;
  EXPECT_FALSE(is_there(dir / "absent"));
  EXPECT_FALSE(read_optional_text_file(dir / "absent"));
  EXPECT_FALSE(is_there(dir / "absent" / "below"));
  write_bytes(dir / "file", "text");
  std::filesystem::create_symlink("file", dir / "link");
  EXPECT_EQ(read_optional_text_file(dir / "link"), "text");
  std::filesystem::create_symlink("../blobs/gone", dir / "dangling");
  std::filesystem::create_symlink("circle", dir / "circle");
  const auto said = [&](const char* name) { return error_of([&] { read_optional_text_file(dir / name); }); };
  EXPECT_EQ(said("dangling"), (dir / "dangling").string() + ": a symbolic link to ../blobs/gone, which is not there");
  EXPECT_EQ(said("circle"), (dir / "circle").string() + ": a symbolic link to circle, which leads in a circle");
  EXPECT_EQ(error_of([&] { MappedFile file(dir / "dangling"); }), said("dangling"));
}

TEST(InputFile, APipeIsRefusedAndNotWaitedFor) {
  TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { read_text_file(dir / "pipe"); }),
            (dir / "pipe").string() + ": expected a regular file, found a pipe");
  EXPECT_NE(error_of([] { read_text_file("/dev/zero"); }).find("found a device"), std::string::npos);
  EXPECT_NE(error_of([&] { read_text_file(dir.path()); }).find("found a directory"), std::string::npos);
}

TEST(InputFile, AFileBeyondTheLimitIsRefused) {
  TempDir dir;
  write_bytes(dir / "file", "12345");
  EXPECT_EQ(read_text_file(dir / "file", 5), "12345");
  EXPECT_THROW(read_text_file(dir / "file", 4), Error);
}

}  // namespace
}  // namespace lily
