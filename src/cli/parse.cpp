#include "cli/parse.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <set>

namespace lily::cli {
namespace {

/// The library's words for a value that is missing ("--temp: 1 required TEXT missing") or one too many ("exact was
/// given a disallowed flag override"), in ours.
std::string mismatch(const std::string& message) {
  const std::string name = message.substr(0, message.find_first_of(": "));
  if (message.find("override") != message.npos) return fmt::format("--{} takes no value", name);
  return message.find("required") != message.npos ? fmt::format("{} needs a value", name) : message;
}

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
    if (o->repeats) {
      const auto take_each = [take](const std::vector<std::string>& texts) {
        std::for_each(texts.begin(), texts.end(), take);
      };
      app.add_option_function<std::vector<std::string>>(spelling, take_each)->allow_extra_args(false);
    } else if (o->takes_value()) {
      app.add_option_function<std::string>(spelling, take)->take_last();
    } else {
      app.add_flag_callback(spelling, [take] { take(""); })->disable_flag_override()->take_last();
    }
  }
  std::reverse(words.begin(), words.end());  // the library's order
  try {
    app.parse(words);
  } catch (const CLI::ArgumentMismatch& e) {
    throw UsageError(mismatch(e.what()));
  } catch (const CLI::ParseError& e) {
    throw UsageError(e.what());
  }
  std::vector<std::string> extra = app.remaining();
  if (const auto mark = std::find(extra.begin(), extra.end(), "--"); mark != extra.end()) extra.erase(mark);
  if (!extra.empty() && !settings.help) throw UsageError(unexpected(extra.front()));
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
