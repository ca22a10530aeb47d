#include "base/output_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <optional>
#include <string>
#include <system_error>

#include "base/error.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUnfinished = ".part";

/// 17 of "result.17.part" when `file` is "result".
std::optional<pid_t> owner_of(std::string_view name, const std::string& file) {
  if (!name.starts_with(file + ".") || !name.ends_with(kUnfinished)) return std::nullopt;
  name.remove_prefix(file.size() + 1);
  if (name.size() <= kUnfinished.size()) return std::nullopt;
  name.remove_suffix(kUnfinished.size());
  pid_t owner = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), owner);
  if (error != std::errc() || end != name.data() + name.size() || owner <= 0) return std::nullopt;
  return owner;
}

bool is_gone(pid_t process) {
  return process == ::getpid() || (::kill(process, 0) != 0 && errno == ESRCH);
}

/// Whoever writes a file holds its lock: a process of another machine or container has a number that means nothing
/// here.
bool is_held(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return true;
  struct stat info {};
  const bool free = ::fstat(file, &info) == 0 && S_ISREG(info.st_mode) && ::flock(file, LOCK_EX | LOCK_NB) == 0;
  ::close(file);
  return !free;
}

/// What is left of a run that was killed while it wrote `path`.
void remove_left_over(const fs::path& path) {
  std::error_code ignored;
  const std::string file = path.filename().string();
  for (const auto& entry : fs::directory_iterator(fs::absolute(path).parent_path(), ignored)) {
    const auto owner = owner_of(entry.path().filename().string(), file);
    if (owner && is_gone(*owner) && !is_held(entry.path())) ::unlink(entry.path().c_str());
  }
}

}  // namespace

fs::path follow_links(const fs::path& path) {
  constexpr int kMostLinks = 40;  // the usual bound of a kernel
  fs::path at = path;
  std::error_code ignored;
  for (int i = 0; fs::is_symlink(at, ignored); ++i) {
    if (i == kMostLinks)
      throw Error(ErrorCode::io, path.string() + ": more than " + std::to_string(kMostLinks) +
                                     " symbolic links in a chain, or a circle of them");
    at = at.parent_path() / fs::read_symlink(at, ignored);  // an absolute target replaces all of it
  }
  return at;
}

fs::path output_path(const fs::path& path) {
  const fs::path target = follow_links(path);
  std::error_code ignored;
  const auto status = fs::status(target, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status))
    throw Error(ErrorCode::io,
                path.string() + ": is there and is not a regular file; give the name of a file to write");
  return target;
}

fs::path unfinished_name(const fs::path& path) {
  return path.string() + "." + std::to_string(::getpid()) + std::string(kUnfinished);
}

OutputFile::OutputFile(const fs::path& path, OutputUse use) : path_(output_path(path)), unfinished_(unfinished_name(path_)), use_(use) {
  if (use == OutputUse::result) remove_left_over(path_);
  file_ = ::open(unfinished_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, use == OutputUse::result ? 0644 : 0600);
  if (file_ < 0) fail(errno);
  (void)::flock(file_, LOCK_EX | LOCK_NB);  // a file system without locks does without
}

OutputFile::~OutputFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(unfinished_.c_str());
}

void OutputFile::fail(int error) const {
  throw Error(ErrorCode::io, path_.string() + ": cannot be written: " + std::generic_category().message(error));
}

void OutputFile::write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(file_, from, bytes, off_t(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(n < 0 ? errno : ENOSPC);
    from += n;
    offset += std::uint64_t(n);
    bytes -= std::size_t(n);
  }
}

void OutputFile::finish() {
  if (use_ == OutputUse::result && ::fsync(file_) != 0 && errno != EINVAL) fail(errno);
  // Closed after the renaming: until then the lock says whose it is.
  if (::rename(unfinished_.c_str(), path_.c_str()) != 0) fail(errno);
  const int closed = ::close(file_);
  file_ = -1;
  if (closed != 0) fail(errno);
}

void write_text_file(const fs::path& path, std::string_view text) {
  OutputFile file(path);
  file.write_at(0, text.data(), text.size());
  file.finish();
}

}  // namespace lily
