#include "base/input_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "base/mapped_file.h"

namespace lily {

bool is_there(const std::filesystem::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return false;
    throw Error(ErrorCode::io, path.string() + ": cannot be looked at: " + std::generic_category().message(errno));
  }
  if (!S_ISLNK(info.st_mode) || ::stat(path.c_str(), &info) == 0) return true;
  const int error = errno;
  std::error_code ignored;
  const std::string target = std::filesystem::read_symlink(path, ignored).string();
  throw Error(ErrorCode::io, path.string() + ": a symbolic link to " + target +
                                 (error == ENOENT  ? ", which is not there"
                                  : error == ELOOP ? ", which leads in a circle"
                                                   : ": " + std::generic_category().message(error)));
}

std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit) {
  const MappedFile file(path);
  if (file.size() > limit)
    throw Error(ErrorCode::io, path.string() + ": " + std::to_string(file.size()) + " bytes, more than the " +
                                   std::to_string(limit) + " expected of it");
  return std::string(reinterpret_cast<const char*>(file.data()), file.size());
}

std::optional<std::string> read_optional_text_file(const std::filesystem::path& path, std::uint64_t limit) {
  if (!is_there(path)) return std::nullopt;
  return read_text_file(path, limit);
}

}  // namespace lily
