// Files that are written beside their place and renamed into it.
#pragma once

#include <filesystem>

namespace lily {

/// Where a chain of symbolic links that begins at `path` leads, be it there already or not; any other path as it is.
/// Renaming onto a link would put a file in the link's place. Error(io) when the links go in a circle.
std::filesystem::path follow_links(const std::filesystem::path& path);

/// Where a result named `path` is to be written: links followed. Error(io) when something lies there that is not a
/// regular file: renaming over it would replace a device or a pipe.
std::filesystem::path output_path(const std::filesystem::path& path);

}  // namespace lily
