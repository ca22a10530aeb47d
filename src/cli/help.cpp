#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/utf8.h"

namespace lily::cli {
namespace {

constexpr std::size_t kColumns = 100;

/// `text` broken at spaces, every line but the first indented by `indent`; paragraphs keep their empty lines.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::string out;
  std::size_t column = indent;
  const std::string new_line = fmt::format("\n{:{}}", "", indent);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::size_t width = utf8_length(std::string_view(text).substr(at, end - at));
    if (column > indent && column + 1 + width > kColumns) {
      out += new_line;
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += text.substr(at, end - at);
    column += width;
    at = end;
    if (at < text.size() && text[at] == '\n') {
      out += new_line;
      column = indent;
    }
    if (at < text.size()) ++at;
  }
  return out;
}

std::string flag_column(const Option& o) {
  std::string s = o.letter ? fmt::format("-{}, ", o.letter) : "";
  s += o.spelling();
  if (!o.value.empty()) s += fmt::format(" {}", o.value);
  return s;
}

std::string usage(const Command& c) {
  std::string s = fmt::format("lily {}", c.name);
  for (const Option* o : options_of(c.name)) {
    if (o->positional()) {
      s += o->required ? fmt::format(" {}", o->name) : fmt::format(" [{}]", o->name);
    } else if (o->required) {
      s += fmt::format(" {} {}", o->spelling(), o->value);
    }
  }
  return s + " [OPTIONS]";
}

std::string explained(const Option& o) {
  std::string s = o.help;
  if (!o.default_text.empty()) s += fmt::format(" (default: {})", o.default_text);
  if (!o.env.empty()) s += fmt::format(" (environment: {})", o.env);
  return s;
}

std::string rows(const Command& c, bool positional, bool common) {
  std::string s;
  for (const Option* o : options_of(c.name)) {
    if (o->positional() != positional || (o->commands == "*") != common) continue;
    std::string flag = fmt::format("  {}", flag_column(*o));
    constexpr std::size_t kHelpColumn = 30;
    const std::size_t width = utf8_length(flag);
    flag += width + 2 > kHelpColumn ? fmt::format("\n{:{}}", "", kHelpColumn) : std::string(kHelpColumn - width, ' ');
    s += flag + wrapped(explained(*o), kHelpColumn) + "\n";
  }
  return s;
}

}  // namespace

std::string general_help() {
  std::string s =
      "lily: a local inference engine for the Qwen3.6-35B-A3B family\n\nusage: lily COMMAND [ARGUMENTS] [OPTIONS]\n\n";
  for (const Command& c : commands()) s += fmt::format("  {:<12}{}\n", c.name, c.summary);
  s += "\nResults go to standard output, everything else to standard error. Exit status: 0 success, 1 a failure that "
       "one\n"
       "line explains, 2 wrong usage. lily COMMAND --help explains a command.\n";
  return s;
}

std::string command_help(const Command& c) {
  std::string s = fmt::format("{}\n\nusage: {}\n", c.summary, usage(c));
  if (!c.details.empty()) s += fmt::format("\n{}\n", wrapped(c.details, 0));
  const auto section = [&](const char* title, const std::string& text) {
    if (!text.empty()) s += fmt::format("\n{}:\n{}", title, text);
  };
  section("arguments", rows(c, true, false));
  section("options", rows(c, false, false));
  section("options of every command", rows(c, false, true));
  std::string examples;
  for (const std::string& e : c.examples) examples += fmt::format("  {}\n", e);
  section("examples", examples);
  return s;
}

std::string options_markdown() {
  const auto cell = [](const std::string& text) {  // a bar would end the cell
    std::string escaped;
    for (const char c : text) {
      if (c == '|') escaped += '\\';
      escaped += c;
    }
    return escaped;
  };
  const auto row = [&](const Option& o) {
    return fmt::format("| `{}` | {} | {} |\n", cell(flag_column(o)),
                       cell(o.help) + (o.env.empty() ? "" : fmt::format(". Environment: `{}`", o.env)),
                       o.required ? "required" : cell(o.default_text));
  };
  std::string s =
      "# Options\n\nGenerated from the tables in src/base/options.cpp and src/cli/commands.cpp: `lily help --markdown "
      "> "
      "docs/OPTIONS.md`. A test compares.\n\nExit status: 0 success, 1 a failure that one line on standard error "
      "explains, 2 wrong "
      "usage. Results go to standard output, everything else to standard error.\n\n## Options of every command\n\n"
      "| option | meaning | default |\n|---|---|---|\n";
  for (const Option& o : options()) {
    if (o.commands == "*") s += row(o);
  }
  for (const Command& c : commands()) {
    s += fmt::format("\n## lily {}\n\n{}.\n\n    {}\n", c.name, c.summary, usage(c));
    if (!c.details.empty()) s += fmt::format("\n{}\n", c.details);
    std::string own;
    for (const Option* o : options_of(c.name)) {
      if (o->commands != "*") own += row(*o);
    }
    if (!own.empty()) s += "\n| option | meaning | default |\n|---|---|---|\n" + own;
    s += "\nExamples:\n\n";
    for (const std::string& e : c.examples) s += fmt::format("    {}\n", e);
  }
  return s;
}

}  // namespace lily::cli
