// Every option of every command, declared once: name, value, default, check, help, commands that take it, environment.
//
// The command line parser, `--help` and docs/OPTIONS.md are all made from this table, so none of them can disagree. A
// value lands in one field of Settings; the default shown is what a Settings has when nothing was said.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lily {

/// Wrong usage of the command line (exit 2), as against a command that was understood and failed (lily::Error, exit 1).
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the command line said. A field is optional where "not said" differs from any value.
struct Settings {
  // positional
  std::string model, out, in, topic;
  std::optional<std::string> prompt, text, ids_list;

  // common
  std::string backend = "auto";
  int threads = 0;  // 0: chosen by the back end
  bool exact = false;
  std::string prefill_activations = "int8", decode_activations = "bf16";
  bool mlock = false;
  bool verbose = false;
  bool help = false;
  bool json = false;

  // sampling: flag > generation_config.json > neutral
  std::optional<double> temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<int> top_k;
  std::optional<std::uint64_t> seed;

  // generation
  std::optional<std::string> system;
  std::optional<int> max_tokens;
  int max_context = 0;  // 0: the model's
  bool no_think = false;
  bool raw = false;
  bool stats = false;
  std::string tools_file;

  // logits, eval, tokenize, template, inspect
  std::string ids_file, out_file, text_file, reference_file, messages_file;
  std::vector<int> split;
  bool hidden = false;
  bool special = false;
  bool ids = false;
  int context = 0;
  bool all_layers = false;
  bool check = false;
  bool markdown = false;

  // bench
  std::vector<int> prefill_lengths, decode_contexts;
  int reps = 3, steps = 32;
  std::vector<std::string> ablate;
  std::string peer, plot_file;
  bool stages = false;

  // serve
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string api_key;
  bool insecure = false;
  std::vector<std::string> aliases, allowed_hosts, allowed_origins, volatile_lines;
  std::string cache_bytes = "auto", cache_dir;
  int parallel = 4, queue = 64, drain_seconds = 30;
  std::string think, preserve_thinking, restore_reasoning = "on";
  std::optional<int> thinking_budget;

  // pull
  std::string repo, revision = "main", name;

  // synth, quantize
  std::string preset, config_file;
  int bits = 4, group = 64;
};

struct Option {
  std::string name;      // "temp" is spelt --temp; a positional argument is in capitals: "MODEL"
  std::string value;     // what stands for the value in the help: "N", "FILE", "on|off"; empty: a switch
  std::string help;      // one sentence
  std::string commands;  // names with spaces between; "*": every command
  char letter = 0;       // short form, 0: none
  bool required = false;
  bool repeats = false;      // may be given several times, each adding a value; else the last one counts
  std::string env;           // variable that is taken when the flag is absent; empty: none
  std::string default_text;  // empty: none
  /// Checks `text` and stores it. UsageError that names the flag, what it takes and what it got.
  std::function<void(Settings&, const std::string& text)> set;

  bool positional() const { return name[0] >= 'A' && name[0] <= 'Z'; }
  bool takes_value() const { return !value.empty() || positional(); }
  std::string spelling() const;
  bool of(std::string_view command) const;  // does `command` take it?
};

/// The table, in the order in which help shows it.
const std::vector<Option>& options();

/// The rows that `command` takes, positional ones first.
std::vector<const Option*> options_of(std::string_view command);

/// A whole decimal number from `text`; UsageError that names `flag` when it is none or outside lo…hi.
std::int64_t parse_integer(const std::string& flag, const std::string& text, std::int64_t lo, std::int64_t hi);
/// A finite decimal number.
double parse_number(const std::string& flag, const std::string& text, double lo, double hi);
/// Whole numbers separated by commas.
std::vector<int> parse_integers(const std::string& flag, const std::string& text, int lo, int hi);

}  // namespace lily
