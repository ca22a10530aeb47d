// A file mapped read-only into memory: pages come from the page cache when they are touched, nothing is copied.
//
// A mapping stays valid while its MappedFile lives. A file that another process cuts short while it is mapped faults
// (SIGBUS) on the lost pages; sizes are checked once, when the file is opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace lily {

/// What the kernel is told about the accesses to come (madvise).
enum class Access { normal, sequential, random, will_need, dont_need };

class MappedFile {
 public:
  /// Error(not_found) or Error(io) with the file's name and the system's words. An empty file maps to size() == 0.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

  /// A hint for [offset, offset + bytes), widened to whole pages; a kernel that refuses it is no error.
  void advise(Access access, std::uint64_t offset, std::uint64_t bytes) const;
  /// Reads [offset, offset + bytes) in and pins it. Error(out_of_memory) says which limit stood in the way.
  void lock(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

/// Gives back the resident pages that lie wholly inside a part of a mapping that was read and is not needed soon; a
/// later access reads the file again. Only for ranges of a MappedFile: elsewhere it would lose data.
void release_pages(const std::byte* mapped, std::uint64_t bytes);

}  // namespace lily
