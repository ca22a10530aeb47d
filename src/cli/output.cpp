#include "cli/output.h"

#include <fmt/format.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_fault.h"
#include "base/log.h"

namespace lily::cli {
namespace {

std::string read_all(int fd, const std::string& name) {
  std::string all;
  std::string buffer(1 << 16, '\0');
  while (true) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n == 0) return all;
    if (n > 0) {
      all.append(buffer, 0, std::size_t(n));
    } else if (errno != EINTR) {
      throw Error(ErrorCode::io, fmt::format("{}: {}", name, std::strerror(errno)));
    }
    if (all.size() > kMaxInputBytes)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: more than {} MiB, the most that is read", name, kMaxInputBytes >> 20));
  }
}

[[noreturn]] void no_id(const std::string& from, std::size_t element, const std::string& shown) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: element {} is {}, not a token id", from, element, shortened(shown, 40)));
}

}  // namespace

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
  return read_all(STDIN_FILENO, "standard input");
}

std::string read_file(const std::string& flag, const std::filesystem::path& path) {
  if (path == "-") return read_stdin();
  const std::string name = fmt::format("{} {}", flag, path.string());
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR) throw Error(ErrorCode::not_found, name + ": no such file");
    throw Error(ErrorCode::io, fmt::format("{}: cannot be read: {}", name, std::strerror(errno)));
  }
  try {
    std::string all = read_all(fd, name);
    ::close(fd);
    return all;
  } catch (...) {
    ::close(fd);
    throw;
  }
}

std::vector<std::int32_t> parse_ids(std::string_view text, const std::string& from) {
  const auto json = parse_json_file(text, from, ErrorCode::invalid_argument);
  if (!json.is_array()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: expected a JSON list of token ids, found {}", from, json.type_name()));
  }
  std::vector<std::int32_t> ids;
  for (const auto& v : json) {
    const bool fits = v.is_number_integer() && v >= 0 && v <= std::numeric_limits<std::int32_t>::max();
    if (!fits) no_id(from, ids.size(), v.dump());
    ids.push_back(v.get<std::int32_t>());
  }
  return ids;
}

std::vector<std::int32_t> parse_loose_ids(std::string_view text, const std::string& from) {
  constexpr std::string_view kGaps = " ,\t\r\n";
  std::size_t at = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  if (at < text.size() && text[at] == '[') return parse_ids(text, from);
  std::vector<std::int32_t> ids;
  while ((at = std::min(text.find_first_not_of(kGaps, at), text.size())) < text.size()) {
    const std::string_view word = text.substr(at, text.find_first_of(kGaps, at) - at);
    std::int32_t id = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size() || id < 0)
      no_id(from, ids.size(), fmt::format("'{}'", word));
    ids.push_back(id);
    at += word.size();
  }
  return ids;
}

bool stdout_is_terminal() {
  return ::isatty(STDOUT_FILENO) != 0;
}
bool stderr_is_terminal() {
  return ::isatty(STDERR_FILENO) != 0;
}
bool stdin_is_terminal() {
  return ::isatty(STDIN_FILENO) != 0;
}

}  // namespace lily::cli
