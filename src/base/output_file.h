// Files that are written beside their place and renamed into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>

namespace lily {

/// Where a chain of symbolic links that begins at `path` leads, be it there already or not; any other path as it is.
/// Renaming onto a link would put a file in the link's place. Error(io) when the links go in a circle.
std::filesystem::path follow_links(const std::filesystem::path& path);

/// Where a result named `path` is to be written: links followed. Error(io) when something lies there that is not a
/// regular file: renaming over it would replace a device or a pipe.
std::filesystem::path output_path(const std::filesystem::path& path);

/// The name beside `path` under which this process writes what is to become it: `path`.PID.part.
std::filesystem::path unfinished_name(const std::filesystem::path& path);

/// result: for whom the umask allows, on the disk when finish() returns. cache: for its owner alone; its name is used once, so nobody
/// left an unfinished one, and a loss is a miss, so nothing waits for the disk.
enum class OutputUse { result, cache };

/// A file that appears under its name only when finish() succeeds; until then it has its unfinished_name(), which is
/// made by this object and removed by it. What a process that is gone left of the same file is removed at the start.
/// Every Error(io) names `path` and not the unfinished name.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path, OutputUse use = OutputUse::result);
  ~OutputFile();  // without finish(): the unfinished file is removed
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// From any thread.
  void write_at(std::uint64_t offset, const void* data, std::size_t bytes);
  void finish();  // flushes a result, then renames into place

 private:
  [[noreturn]] void fail(int error) const;

  std::filesystem::path path_, unfinished_;
  OutputUse use_;
  int file_ = -1;
};

/// Writes a small file at once.
void write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace lily
