#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"

namespace lily::cli {

void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(std::size_t(n));
    } else if (errno == EPIPE) {
      throw OutputClosed();
    } else if (errno != EINTR) {
      throw Error(ErrorCode::io, fmt::format("standard output: {}", std::strerror(errno)));
    }
  }
}

std::string read_stdin() {
  std::string all;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n == 0) return all;
    if (n > 0) {
      all.append(buffer, std::size_t(n));
    } else if (errno != EINTR) {
      throw Error(ErrorCode::io, fmt::format("standard input: {}", std::strerror(errno)));
    }
  }
}

std::string read_file(const std::string& flag, const std::filesystem::path& path) {
  if (path == "-") return read_stdin();
  std::error_code ec;
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path, ec)) {
    const bool exists = std::filesystem::exists(path, ec);
    throw Error(exists ? ErrorCode::io : ErrorCode::not_found,
                fmt::format("{} {}: {}", flag, path.string(), exists ? "cannot be read as a file" : "no such file"));
  }
  std::ostringstream all;
  all << in.rdbuf();
  if (in.bad()) throw Error(ErrorCode::io, fmt::format("{} {}: reading failed", flag, path.string()));
  return std::move(all).str();
}

std::vector<std::int32_t> parse_ids(std::string_view text, const std::string& from) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: expected a JSON list of token ids", from));
  }
  std::vector<std::int32_t> ids;
  for (const auto& v : json) {
    const bool fits = v.is_number_integer() && v >= 0 && v <= std::numeric_limits<std::int32_t>::max();
    if (!fits) {
      std::string shown = v.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      if (shown.size() > 40) shown = shown.substr(0, 40) + "…";
      throw Error(ErrorCode::invalid_argument, fmt::format("{}: element {} is {}, not a token id", from, ids.size(), shown));
    }
    ids.push_back(v.get<std::int32_t>());
  }
  return ids;
}

bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) != 0; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) != 0; }
bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) != 0; }

}  // namespace lily::cli
