// Files that are written beside their place and renamed into it.
#pragma once

#include <filesystem>

namespace lily {

/// Error(io) when something lies at `path` that is not a regular file: renaming over it would replace a device or a pipe.
void check_replaceable(const std::filesystem::path& path);

}  // namespace lily
