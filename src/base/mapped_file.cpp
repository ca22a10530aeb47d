#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "base/input_file.h"

namespace lily {
namespace {

std::string system_words(int error) {
  return std::generic_category().message(error);
}

[[noreturn]] void fail(const std::filesystem::path& path, const char* what, int error) {
  const ErrorCode code = error == ENOENT || error == ENOTDIR ? ErrorCode::not_found : ErrorCode::io;
  throw Error(code, fmt::format("{}: {}: {}", path.string(), what, system_words(error)));
}

const char* kind_of(mode_t mode) {
  return S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

struct Pages {
  std::byte* begin;
  std::size_t bytes;
};

/// [offset, offset + bytes) cut to the file and widened to whole pages, as madvise and mlock want it.
Pages whole_pages(const MappedFile& file, std::uint64_t offset, std::uint64_t bytes) {
  static const auto page = std::uint64_t(sysconf(_SC_PAGESIZE));
  const std::uint64_t first = std::min(offset, file.size());
  const std::uint64_t last = first + std::min(bytes, file.size() - first);
  const std::uint64_t begin = first / page * page;
  return {const_cast<std::byte*>(file.data()) + begin, std::size_t(last - begin)};
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  if (!is_there(path)) fail(path, "cannot open", ENOENT);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe does not wait for its writer
  if (fd < 0) fail(path, "cannot open", errno);
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    fail(path, "cannot read its size", error);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    throw Error(ErrorCode::io,
                fmt::format("{}: expected a regular file, found {}", path.string(), kind_of(info.st_mode)));
  }
  size_ = std::uint64_t(info.st_size);
  void* mapped = size_ ? ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0) : nullptr;
  const int error = errno;
  ::close(fd);  // the mapping keeps the file open
  if (mapped == MAP_FAILED) fail(path, "cannot map", error);
  data_ = static_cast<const std::byte*>(mapped);
#if defined(__linux__)
  // A wish: what is read from the disk comes in huge pages where the file system has them. Decode reads all weights for each token,
  // and small pages cost it more translations than it has caches for.
  if (size_ > 0) (void)::madvise(mapped, size_, MADV_HUGEPAGE);
#endif
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::advise(Access access, std::uint64_t offset, std::uint64_t bytes) const {
  const Pages pages = whole_pages(*this, offset, bytes);
  if (!data_ || pages.bytes == 0) return;
  int advice = MADV_NORMAL;
  switch (access) {
    case Access::normal:
      advice = MADV_NORMAL;
      break;
    case Access::sequential:
      advice = MADV_SEQUENTIAL;
      break;
    case Access::random:
      advice = MADV_RANDOM;
      break;
    case Access::will_need:
      advice = MADV_WILLNEED;
      break;
    case Access::dont_need:
      advice = MADV_DONTNEED;
      break;
  }
  (void)::madvise(pages.begin, pages.bytes, advice);
}

void MappedFile::lock(std::uint64_t offset, std::uint64_t bytes) const {
  const Pages pages = whole_pages(*this, offset, bytes);
  if (!data_ || pages.bytes == 0) return;
  if (::mlock(pages.begin, pages.bytes) == 0) return;
  const int error = errno;
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string allowed =
      limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{} bytes", std::uint64_t(limit.rlim_cur));
  throw Error(ErrorCode::out_of_memory,
              fmt::format("{}: cannot lock {} bytes in memory: {} (locked memory allowed to this process: {}; raise it "
                          "with `ulimit -l` or leave out --mlock)",
                          path_.string(), pages.bytes, system_words(error), allowed));
}

void release_pages(const std::byte* mapped, std::uint64_t bytes) {
  static const auto page = std::uintptr_t(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(mapped) + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(mapped) + bytes) / page * page;
  if (end > begin) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace lily
