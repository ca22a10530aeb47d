#include "base/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

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

std::vector<std::string> names_in(const TempDir& dir) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir.path())) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(OutputFile, AppearsWhenItIsFinishedAndLeavesNothingElse) {
  TempDir dir;
  write_bytes(dir / "result.partial", "somebody's");
  {
    OutputFile file(dir / "result");
    file.write_at(2, "cd", 2);
    file.write_at(0, "ab", 2);
    EXPECT_FALSE(fs::exists(dir / "result"));
    EXPECT_THROW(OutputFile second(dir / "result"), Error);  // the name is taken
    file.finish();
  }
  EXPECT_EQ(read_bytes(dir / "result"), "abcd");
  { OutputFile dropped(dir / "result"); }
  EXPECT_EQ(names_in(dir), (std::vector<std::string>{"result", "result.partial"}));
  EXPECT_EQ(read_bytes(dir / "result"), "abcd");
}

TEST(OutputFile, WhatDeadProcessesLeftIsRemovedAndNothingOfOthers) {
  TempDir dir;
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ::waitpid(dead, nullptr, 0);
  const std::string left = "result." + std::to_string(dead) + ".part";
  const std::vector<std::string> kept = {"other." + std::to_string(dead) + ".part", "result.1.part", "result.part",
                                         "result.x.part"};
  write_bytes(dir / left, "half");
  for (const std::string& name : kept) write_bytes(dir / name, "half");
  { OutputFile file(dir / "result"); }
  EXPECT_EQ(names_in(dir), kept);
  // Under a dead number, but locked: a process of another machine or container is at work.
  write_bytes(dir / left, "half");
  const int held = ::open((dir / left).c_str(), O_RDWR);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  { OutputFile file(dir / "result"); }
  EXPECT_TRUE(fs::exists(dir / left));
  ::close(held);
}

TEST(OutputFile, ErrorsNameTheFileThatWasAskedFor) {
  for (const char* path : {"/nonexistent/file", "/proc/file"}) {
    try {
      write_text_file(path, "x");
      ADD_FAILURE() << path;
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find(path + std::string(": cannot be written: ")), 0u) << e.what();
      EXPECT_EQ(std::string(e.what()).find(".part"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace lily
