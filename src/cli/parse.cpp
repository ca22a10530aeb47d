#include "cli/parse.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <set>

namespace lily::cli {
namespace {

/// One word's place in the table, for what the library does not report by name.
std::string unexpected(const std::string& word) {
  if (word.size() > 1 && word[0] == '-') return fmt::format("unknown option {}", word.substr(0, word.find('=')));
  return fmt::format("unexpected argument '{}'", word);
}

}  // namespace

Settings parse(const Command& command, std::vector<std::string> words) {
  Settings settings;
  std::set<const Option*> given;
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  for (const Option* o : options_of(command.name)) {
    std::string spelling = o->spelling();
    if (o->letter) spelling += fmt::format(",-{}", o->letter);
    const auto take = [&settings, &given, o](const std::string& text) {
      given.insert(o);
      o->set(settings, text);
    };
    if (o->takes_value()) {
      app.add_option_function<std::string>(spelling, take)->take_last();
    } else {
      app.add_flag_callback(spelling, [take] { take(""); })->disable_flag_override()->take_last();
    }
  }
  std::reverse(words.begin(), words.end());  // the library's order
  try {
    app.parse(words);
  } catch (const CLI::ArgumentMismatch& e) {
    throw UsageError(e.what());
  } catch (const CLI::ParseError& e) {
    throw UsageError(e.what());
  }
  if (const auto extra = app.remaining(); !extra.empty() && !settings.help) throw UsageError(unexpected(extra.front()));
  for (const Option* o : options_of(command.name)) {
    if (given.contains(o)) continue;
    if (const char* value = o->env.empty() ? nullptr : std::getenv(o->env.c_str())) {
      try {
        o->set(settings, value);
      } catch (const UsageError& e) {
        throw UsageError(fmt::format("environment variable {}: {}", o->env, e.what()));
      }
    } else if (o->required && !settings.help) {
      throw UsageError(fmt::format("{} is missing", o->spelling()));
    }
  }
  return settings;
}

}  // namespace lily::cli
