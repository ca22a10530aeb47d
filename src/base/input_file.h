// Files of a model as they are found: small ones read whole, optional ones told from broken ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lily {

/// Whether there is something named `path`. Error(io) for a symbolic link that leads to nothing or in a circle: a link
/// says that a file was meant, so it is not as good as absent.
bool is_there(const std::filesystem::path& path);

/// Reads a small text file (config.json, an index, tokenizer files). Error(not_found, io) as MappedFile; Error(io)
/// beyond `limit` bytes.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit = 64u << 20);

/// The same of a file that may be absent: nothing then.
std::optional<std::string> read_optional_text_file(const std::filesystem::path& path, std::uint64_t limit = 64u << 20);

}  // namespace lily
