// Standard output, where results go, and standard input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace lily::cli {

/// The reader of standard output has gone: no failure, but nothing more to do (exit 0).
struct OutputClosed {};

/// Writes and hands over at once. OutputClosed when nobody reads any more; Error(io) for any other reason.
void put(std::string_view text);

/// The most that is read of a text or JSON input: far more than any prompt, and less than a device without an end gives.
inline constexpr std::size_t kMaxInputBytes = std::size_t(256) << 20;

/// All of standard input, byte for byte. Error beyond kMaxInputBytes.
std::string read_stdin();
/// All of the file; "-" is standard input. Error that names `flag` and the file; also beyond kMaxInputBytes.
std::string read_file(const std::string& flag, const std::filesystem::path& path);

/// What `use` gives; an Error of it gets the name of what it was about put in front: a flag and its file.
template <class Use>
auto about(const std::string& name, Use use) {
  try {
    return use();
  } catch (const Error& e) {
    throw Error(e.code(), name + ": " + e.what());
  }
}

/// Token ids as a JSON list of whole numbers that fit 32 bits. `from` is what messages call the source.
std::vector<std::int32_t> parse_ids(std::string_view json, const std::string& from);
/// The same of a list with or without brackets, with commas or spaces.
std::vector<std::int32_t> parse_loose_ids(std::string_view text, const std::string& from);

bool stdout_is_terminal();
bool stderr_is_terminal();
bool stdin_is_terminal();

}  // namespace lily::cli
