// Standard output, where results go, and standard input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lily::cli {

/// The reader of standard output has gone: no failure, but nothing more to do (exit 0).
struct OutputClosed {};

/// Writes and hands over at once. OutputClosed when nobody reads any more; Error(io) for any other reason.
void put(std::string_view text);

/// All of standard input, byte for byte.
std::string read_stdin();
/// All of the file; "-" is standard input. Error that names `flag` and the file.
std::string read_file(const std::string& flag, const std::filesystem::path& path);

/// A JSON list of whole numbers that fit 32 bits. `from` is what messages call the source.
std::vector<std::int32_t> parse_ids(std::string_view json, const std::string& from);

bool stdout_is_terminal();
bool stderr_is_terminal();
bool stdin_is_terminal();

}  // namespace lily::cli
