#include "base/output_file.h"

#include "base/error.h"

namespace lily {

std::filesystem::path follow_links(const std::filesystem::path& path) {
  constexpr int kMostLinks = 40;  // the usual bound of a kernel
  std::filesystem::path at = path;
  std::error_code ignored;
  for (int i = 0; std::filesystem::is_symlink(at, ignored); ++i) {
    if (i == kMostLinks)
      throw Error(ErrorCode::io, path.string() + ": more than " + std::to_string(kMostLinks) +
                                     " symbolic links in a chain, or a circle of them");
    at = at.parent_path() / std::filesystem::read_symlink(at, ignored);  // an absolute target replaces all of it
  }
  return at;
}

std::filesystem::path output_path(const std::filesystem::path& path) {
  const std::filesystem::path target = follow_links(path);
  std::error_code ignored;
  const auto status = std::filesystem::status(target, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw Error(ErrorCode::io, path.string() + ": is there and is not a regular file; give the name of a file to write");
  return target;
}

}  // namespace lily
