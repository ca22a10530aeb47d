#include "base/output_file.h"

#include "base/error.h"

namespace lily {

void check_replaceable(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw Error(ErrorCode::io, path.string() + ": is there and is not a regular file; give the name of a file to write");
}

}  // namespace lily
