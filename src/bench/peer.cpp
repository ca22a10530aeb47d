#include "bench/peer.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <regex>
#include <vector>

#include "base/error.h"

namespace lily::bench {
namespace {

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (std::size_t at = line.find('|'); at != line.npos;) {
    const std::size_t end = line.find('|', at + 1);
    if (end == line.npos) break;
    std::string cell = line.substr(at + 1, end - at - 1);
    cell.erase(0, cell.find_first_not_of(' '));
    cell.erase(cell.find_last_not_of(' ') + 1);
    cells.push_back(cell);
    at = end;
  }
  return cells;
}

double last_match(const std::string& text, const std::regex& pattern) {
  double found = -1;
  for (std::sregex_iterator m(text.begin(), text.end(), pattern), end; m != end; ++m)
    found = std::strtod((*m)[1].str().c_str(), nullptr);
  return found;
}

// The number at the beginning of the t/s cell of the last line of a table.
double table_figure(const std::string& text) {
  double found = -1;
  std::size_t column = std::string::npos;
  for (const std::string& line : lines_of(text)) {
    const auto cells = cells_of(line);
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (cells[i] == "t/s") column = i;
    if (column >= cells.size()) continue;
    char* end = nullptr;
    const double value = std::strtod(cells[column].c_str(), &end);
    if (end != cells[column].c_str()) found = value;
  }
  return found;
}

std::string last_line(const std::string& output) {
  const auto lines = lines_of(output);
  for (std::size_t i = lines.size(); i-- > 0;)
    if (lines[i].find_first_not_of(" \t\r") != std::string::npos) return lines[i].substr(0, 200);
  return "nothing";
}

}  // namespace

std::string peer_command(const std::string& command, plan::Phase phase, int n, int steps) {
  const bool prefill = phase == plan::Phase::prefill;
  const std::vector<std::pair<std::string, std::string>> words = {{"n", std::to_string(n)},
                                                                  {"phase", prefill ? "prefill" : "decode"},
                                                                  {"prefill", std::to_string(prefill ? n : 0)},
                                                                  {"context", std::to_string(prefill ? 0 : n)},
                                                                  {"steps", std::to_string(prefill ? 0 : steps)}};
  static const std::regex placeholder("\\{([a-z]+)\\}");
  std::string out;
  bool has_length = false;
  auto rest = command.cbegin();
  for (std::sregex_iterator m(command.begin(), command.end(), placeholder), end; m != end; ++m) {
    const std::string name = (*m)[1];
    out.append(rest, (*m)[0].first);
    rest = (*m)[0].second;
    const auto word = std::find_if(words.begin(), words.end(), [&](const auto& w) { return w.first == name; });
    if (word == words.end())
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--peer: {{{}}} is none of {{n}}, {{phase}}, {{prefill}}, {{context}}, {{steps}}", name));
    has_length |= name == "n" || name == "prefill" || name == "context";
    out += word->second;
  }
  if (!has_length)
    throw Error(
        ErrorCode::invalid_argument,
        "--peer: the command has neither {n} nor {prefill} nor {context}: it would be the same for every length");
  return out.append(rest, command.cend());
}

double peer_figure(std::string_view output) {
  static const std::string kNumber = "([0-9]+(?:\\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)";
  static const std::regex json("\"avg_ts\"\\s*:\\s*" + kNumber);
  static const std::regex plain(kNumber + "\\s*(?:t/s|tok/s|tokens/s|tokens per second)");
  const std::string text(output);
  double figure = last_match(text, json);
  if (figure < 0) figure = table_figure(text);
  if (figure < 0) figure = last_match(text, plain);
  return figure > 0 ? figure : -1;
}

double run_peer(const std::string& command) {
  // The braces keep the redirection for all of a command of several parts; the line break, for one that ends in a
  // comment.
  FILE* pipe = ::popen(("{ " + command + "\n} 2>&1").c_str(), "r");
  if (!pipe) throw Error(ErrorCode::io, fmt::format("--peer: the shell cannot be started: {}", std::strerror(errno)));
  std::string output;
  char buffer[4096];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, n);
  const int status = ::pclose(pipe);
  if (status != 0) {
    const std::string how = WIFEXITED(status) ? fmt::format("exit status {}", WEXITSTATUS(status)) : "a signal";
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--peer: '{}' ended with {}; its last line: {}", command, how, last_line(output)));
  }
  const double figure = peer_figure(output);
  if (figure < 0)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--peer: '{}' printed no tokens a second (\"avg_ts\": N, a table's t/s "
                            "column, N t/s, N tok/s, N tokens/s); its last line: {}",
                            command, last_line(output)));
  return figure;
}

}  // namespace lily::bench
