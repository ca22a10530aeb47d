#include "base/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace lily {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();
constexpr int kMaxBench = 1 << 30;

[[noreturn]] void wrong(const std::string& flag, const std::string& text, const std::string& expected) {
  throw UsageError(fmt::format("{} takes {}, not '{}'", flag, expected, text));
}

/// Is `text` one of the `words`, which are separated by '|'?
bool is_one_of(const std::string& text, const std::string& words) {
  if (text.empty() || text.find('|') != text.npos) return false;
  return fmt::format("|{}|", words).find(fmt::format("|{}|", text)) != std::string::npos;
}

/// A row under construction: the constructor sets the words, the functions below say where the value goes.
struct Row : Option {
  Row(std::string commands_, std::string name_, std::string value_, std::string help_) {
    commands = std::move(commands_);
    name = std::move(name_);
    value = std::move(value_);
    help = std::move(help_);
  }
  Row&& must() && {
    required = true;
    return std::move(*this);
  }
  Row&& short_form(char c) && {
    letter = c;
    return std::move(*this);
  }
  Row&& to(bool Settings::*field) && {
    set = [field](Settings& s, const std::string&) { s.*field = true; };
    return std::move(*this);
  }
  Row&& to(std::string Settings::*field) && {
    default_text = Settings().*field;
    set = [field](Settings& s, const std::string& text) { s.*field = text; };
    return std::move(*this);
  }
  Row&& to(std::optional<std::string> Settings::*field) && {
    set = [field](Settings& s, const std::string& text) { s.*field = text; };
    return std::move(*this);
  }
  /// One of the words in `value`, which are separated by '|'.
  Row&& choice(std::string Settings::*field) && {
    default_text = Settings().*field;
    set = [field, flag = spelling(), words = value](Settings& s, const std::string& text) {
      if (!is_one_of(text, words)) wrong(flag, text, words);
      s.*field = text;
    };
    return std::move(*this);
  }
  Row&& to(int Settings::*field, int lo, int hi, std::string shown = "") && {
    default_text = shown.empty() ? std::to_string(Settings().*field) : shown;
    set = [field, flag = spelling(), lo, hi](Settings& s, const std::string& text) {
      s.*field = int(parse_integer(flag, text, lo, hi));
    };
    return std::move(*this);
  }
  Row&& to(std::optional<int> Settings::*field, int lo, int hi, std::string shown) && {
    default_text = std::move(shown);
    set = [field, flag = spelling(), lo, hi](Settings& s, const std::string& text) {
      s.*field = int(parse_integer(flag, text, lo, hi));
    };
    return std::move(*this);
  }
  Row&& to(std::optional<double> Settings::*field, double lo, double hi, std::string shown) && {
    default_text = std::move(shown);
    set = [field, flag = spelling(), lo, hi](Settings& s, const std::string& text) {
      s.*field = parse_number(flag, text, lo, hi);
    };
    return std::move(*this);
  }
  Row&& to(std::optional<std::uint64_t> Settings::*field, std::string shown) && {
    default_text = std::move(shown);
    set = [field, flag = spelling()](Settings& s, const std::string& text) {
      s.*field = std::uint64_t(parse_integer(flag, text, 0, std::numeric_limits<std::int64_t>::max()));
    };
    return std::move(*this);
  }
  /// May be given several times.
  Row&& each_to(std::vector<std::string> Settings::*field) && {
    repeats = true;
    set = [field](Settings& s, const std::string& text) { (s.*field).push_back(text); };
    return std::move(*this);
  }
  /// One of the numbers in `value`, which are separated by '|'.
  Row&& choice(int Settings::*field) && {
    default_text = std::to_string(Settings().*field);
    set = [field, flag = spelling(), words = value](Settings& s, const std::string& text) {
      if (!is_one_of(text, words)) wrong(flag, text, words);
      s.*field = int(parse_integer(flag, text, 0, kMaxInt));
    };
    return std::move(*this);
  }
  Row&& list(std::vector<int> Settings::*field, int lo, int hi, std::string shown = "") && {
    default_text = std::move(shown);
    set = [field, flag = spelling(), lo, hi](Settings& s, const std::string& text) {
      s.*field = parse_integers(flag, text, lo, hi);
    };
    return std::move(*this);
  }
};

constexpr const char* kModelCommands = "run chat serve bench logits eval tokenize detokenize template inspect";

void positional_rows(std::vector<Option>& t) {
  t.push_back(Row(kModelCommands, "MODEL", "",
                  "a checkpoint directory, the name of one under ~/.cache/lily/models, or tiny (the bundled one)")
                  .to(&Settings::model)
                  .must());
  t.push_back(
      Row("run", "PROMPT", "", "what to answer; without it, standard input is read to its end").to(&Settings::prompt));
  t.push_back(Row("tokenize", "TEXT", "", "without it, standard input is read, byte for byte").to(&Settings::text));
  t.push_back(Row("detokenize", "IDS", "", "a JSON list, or numbers with commas or spaces; without it, standard input")
                  .to(&Settings::ids_list));
  t.push_back(Row("quantize", "IN", "", "a plain (bf16, f16, f32) checkpoint: a directory, or the name of one under ~/.cache/lily/models").to(&Settings::in).must());
  t.push_back(Row("synth", "OUT", "", "the directory to write; a run that was interrupted is continued")
                  .to(&Settings::out)
                  .must());
  t.push_back(
      Row("quantize", "OUT", "", "the directory to write; it must not exist, or be empty").to(&Settings::out).must());
  t.push_back(Row("pull", "REPO", "", "the repository at the hub: OWNER/NAME").to(&Settings::repo).must());
  t.push_back(Row("help", "COMMAND", "", "the command to explain").to(&Settings::topic));
}

void generation_rows(std::vector<Option>& t) {
  const char* gen = "run chat";
  const char* sampled = "run chat serve";
  t.push_back(Row(gen, "system", "TEXT", "system message").to(&Settings::system));
  t.push_back(Row(gen, "max-tokens", "N", "longest answer, thinking included")
                  .to(&Settings::max_tokens, 1, kMaxInt, "to the end of the context window"));
  t.push_back(Row(sampled, "max-context", "N", "context window in tokens, at most the model's; 0: all of it")
                  .to(&Settings::max_context, 0, kMaxInt, "the model's"));
  const std::string model = "the model's generation_config.json, else ";
  t.push_back(Row(sampled, "temp", "X", "temperature; 0 takes the likeliest token each time")
                  .to(&Settings::temperature, 0, 100, model + "1"));
  t.push_back(Row(sampled, "top-p", "X", "keep the likeliest tokens that together reach this probability")
                  .to(&Settings::top_p, 0, 1, model + "1 (off)"));
  t.push_back(
      Row(sampled, "top-k", "N", "keep the N likeliest tokens; 0: all").to(&Settings::top_k, 0, kMaxInt, model + "0"));
  t.push_back(Row(sampled, "min-p", "X", "drop tokens below this share of the likeliest one's probability")
                  .to(&Settings::min_p, 0, 1, model + "0"));
  t.push_back(Row(sampled, "presence-penalty", "X", "subtracted from the logit of every token generated before")
                  .to(&Settings::presence_penalty, -2, 2, model + "0"));
  t.push_back(Row(sampled, "frequency-penalty", "X", "subtracted once for each time a token was generated before")
                  .to(&Settings::frequency_penalty, -2, 2, model + "0"));
  t.push_back(
      Row(sampled, "repetition-penalty", "X", "divides (multiplies, when negative) the logit of every token seen before")
          .to(&Settings::repetition_penalty, 0.01, 100, model + "1"));
  t.push_back(Row(sampled, "seed", "N", "same seed, same text").to(&Settings::seed, "another one each time"));
  t.push_back(Row(gen, "no-think", "", "answer without thinking first").to(&Settings::no_think));
  t.push_back(Row("run", "raw", "", "no chat template: the prompt's text goes in as it is, control tokens included")
                  .to(&Settings::raw));
  t.push_back(Row(gen, "stats", "", "prefill and decode tokens/s at the end, on standard error").to(&Settings::stats));
  t.push_back(Row("chat", "tools", "FILE", "JSON list of tools as the OpenAI API has them; you give each call's result")
                  .to(&Settings::tools_file));
}

void serve_rows(std::vector<Option>& t) {
  t.push_back(Row("serve", "host", "ADDRESS", "listen here; an address that others reach needs --api-key or --insecure").to(&Settings::host));
  t.push_back(Row("serve", "port", "N", "… and on this port; 0: any free one").to(&Settings::port, 0, 65535));
  Row key("serve", "api-key", "KEY", "what clients must send; the variable is better, since others see a command line");
  key.env = "LILY_API_KEY";
  key.set = [](Settings& s, const std::string& text) {
    // An unset variable of a script must not leave the server open, and no header carries what is cut off here.
    const auto plain = [](unsigned char c) { return c >= 0x20 && c != 0x7f; };
    if (text.empty() || text.front() == ' ' || text.back() == ' ' || !std::all_of(text.begin(), text.end(), plain))
      throw UsageError("--api-key takes a key of one character or more, without space at its ends and line breaks");
    s.api_key = text;
  };
  t.push_back(std::move(key));
  t.push_back(Row("serve", "insecure", "", "listen on an address that others reach without a key").to(&Settings::insecure));
  t.push_back(Row("serve", "alias", "NAME", "another name that requests may give the model").each_to(&Settings::aliases));
  t.push_back(Row("serve", "parallel", "N", "requests that are answered at once").to(&Settings::parallel, 1, 64));
  t.push_back(Row("serve", "queue", "N", "requests that wait; one more is told to come again").to(&Settings::queue, 0, 100000));
  t.push_back(Row("serve", "cache-bytes", "BYTES", "memory of conversations (running, and kept for their next turn): a number, with k, m or g, or auto").to(&Settings::cache_bytes));
  t.push_back(Row("serve", "cache-dir", "DIR", "keep conversations here, too, so that they survive a restart; holds prompts in readable form").to(&Settings::cache_dir));
  t.push_back(Row("serve", "allowed-host", "NAME", "a Host that requests may name beside localhost and addresses").each_to(&Settings::allowed_hosts));
  t.push_back(Row("serve", "allowed-origin", "ORIGIN", "a site whose pages may use the server: https://chat.example").each_to(&Settings::allowed_origins));
  t.push_back(Row("serve", "think", "on|off", "thinking, where a request does not say").choice(&Settings::think));
  t.push_back(Row("serve", "preserve-thinking", "on|off", "keep earlier turns' thinking in the prompt, where a request does not say").choice(&Settings::preserve_thinking));
  t.push_back(Row("serve", "restore-reasoning", "on|off", "inside a tool loop, give a client that dropped the reasoning the remembered one back").choice(&Settings::restore_reasoning));
  t.push_back(Row("serve", "thinking-budget", "N", "tokens of thinking, where a request does not say").to(&Settings::thinking_budget, 0, kMaxInt, "no limit"));
  t.push_back(Row("serve", "strip-volatile-line", "REGEX", "leave out lines of the system message that begin with a match").each_to(&Settings::volatile_lines));
  t.push_back(Row("serve", "drain", "SECONDS", "after SIGTERM, how long running answers may take").to(&Settings::drain_seconds, 0, 86400));
}

void bench_rows(std::vector<Option>& t) {
  t.push_back(
      Row("bench", "prefill", "N,N,…", "prompt lengths to measure")
          .list(&Settings::prefill_lengths, 1, kMaxBench, "256,512,1024 … 131072; none when only --decode is given"));
  t.push_back(
      Row("bench", "decode", "N,N,…", "tokens in the context before the first measured step")
          .list(&Settings::decode_contexts, 1, kMaxBench, "256,512,1024 … 131072; none when only --prefill is given"));
  t.push_back(
      Row("bench", "reps", "N", "repetitions of each row; the median is reported").to(&Settings::reps, 1, 1000));
  t.push_back(Row("bench", "steps", "N", "decode steps of one repetition").to(&Settings::steps, 1, 65536));
  t.push_back(Row("bench", "ablate", "NAME",
                  "also measure without this technique, in turn with it; several times for several; all: one "
                  "by one all that act in the phase")
                  .each_to(&Settings::ablate));
  t.push_back(Row("bench", "peer", "COMMAND",
                  "also run this, in turn, and read its tokens/s; {n} stands for the length, "
                  "{phase}, {prefill}, {context} and {steps} as explained above")
                  .to(&Settings::peer));
  t.push_back(Row("bench", "stages", "", "also run each row once more and say which operations take which share of its time").to(&Settings::stages));
  t.push_back(Row("bench", "plot", "FILE", "also draw the rows into this SVG file").to(&Settings::plot_file));
}

void analysis_rows(std::vector<Option>& t) {
  t.push_back(Row("logits", "ids", "FILE", "token ids, a JSON list").to(&Settings::ids_file).must());
  t.push_back(Row("logits", "out", "FILE", "the .safetensors file to write").to(&Settings::out_file).must());
  t.push_back(Row("logits", "split", "N,N,…",
                  "feed the ids in passes of these sizes, the last one repeating; 1 is the decode path")
                  .list(&Settings::split, 1, kMaxInt));
  t.push_back(Row("logits", "hidden", "", "also write hidden_after_layer [layers, n, hidden]").to(&Settings::hidden));
  t.push_back(Row("eval", "text", "FILE", "the text to predict; control tokens in it are ordinary text")
                  .to(&Settings::text_file)
                  .must());
  t.push_back(Row("eval", "context", "N", "window length in tokens; windows do not overlap")
                  .to(&Settings::context, 2, kMaxInt, "the model's context, at most 4096"));
  t.push_back(Row("eval", "reference", "FILE", "another run's logits (.safetensors) of the same ids, to compare with")
                  .to(&Settings::reference_file));
  t.push_back(Row("inspect", "context", "N", "context length of the memory plan")
                  .to(&Settings::context, 1, kMaxInt, "the model's"));
  t.push_back(Row("inspect", "all-layers", "", "plans of every layer, not only of the first of each kind")
                  .to(&Settings::all_layers));
  t.push_back(Row("inspect", "check", "", "read every scale, bias and plain weight: a value that is not finite is an error")
                  .to(&Settings::check));
  t.push_back(Row("tokenize", "special", "", "control tokens in the text count as such").to(&Settings::special));
  t.push_back(Row("template", "messages", "FILE",
                  "a request body: {messages, tools, chat_template_kwargs, add_generation_prompt}; - is standard input")
                  .to(&Settings::messages_file)
                  .must());
  t.push_back(Row("template", "ids", "", "print the prompt's token ids instead of its text").to(&Settings::ids));
  t.push_back(Row("pull", "revision", "REV", "branch, tag or commit").to(&Settings::revision));
  t.push_back(Row("pull", "name", "NAME", "what the model is called here; without it, the repository's NAME")
                  .to(&Settings::name));
  t.push_back(Row("synth", "preset", "qwen3.6-35b-a3b", "a known shape").choice(&Settings::preset));
  t.push_back(Row("synth", "config", "FILE", "a config.json of any shape of the family").to(&Settings::config_file));
  t.push_back(Row("quantize", "bits", "2|3|4|5|6|8", "bits of a weight").choice(&Settings::bits));
  t.push_back(Row("quantize", "group", "32|64|128", "weights that share a scale").choice(&Settings::group));
  t.push_back(Row("run bench eval inspect", "json", "", "print the result as JSON").to(&Settings::json));
  t.push_back(
      Row("help", "markdown", "", "every command and option as docs/OPTIONS.md has it").to(&Settings::markdown));
}

void common_rows(std::vector<Option>& t) {
  t.push_back(Row("*", "backend", "auto|cpu|cuda|metal|reference", "what computes; auto: the fastest this machine has")
                  .choice(&Settings::backend));
  t.push_back(Row("*", "threads", "N", "CPU threads").to(&Settings::threads, 1, 1024, "chosen for the machine"));
  t.push_back(Row("*", "exact", "", "float32 activations, KV, convolution window and residual").to(&Settings::exact));
  t.push_back(Row("*", "prefill-activations", "int8|bf16", "precision in which prompts are read")
                  .choice(&Settings::prefill_activations));
  t.push_back(Row("*", "decode-activations", "int8|bf16", "precision in which answers are computed; int8 helps several at once")
                  .choice(&Settings::decode_activations));
  t.push_back(Row("*", "mlock", "", "lock the weights in memory").to(&Settings::mlock));
  t.push_back(Row("*", "verbose", "", "say more on standard error").to(&Settings::verbose).short_form('v'));
  t.push_back(Row("*", "help", "", "this text").to(&Settings::help).short_form('h'));
}

std::vector<Option> make_table() {
  std::vector<Option> t;
  positional_rows(t);
  generation_rows(t);
  serve_rows(t);
  bench_rows(t);
  analysis_rows(t);
  common_rows(t);
  return t;
}

}  // namespace

std::string Option::spelling() const {
  return positional() ? name : fmt::format("--{}", name);
}

bool Option::of(std::string_view command) const {
  return commands == "*" || fmt::format(" {} ", commands).find(fmt::format(" {} ", command)) != std::string::npos;
}

const std::vector<Option>& options() {
  static const std::vector<Option> table = make_table();
  return table;
}

std::vector<const Option*> options_of(std::string_view command) {
  std::vector<const Option*> found;
  for (const bool positional : {true, false}) {
    for (const Option& o : options()) {
      if (o.positional() == positional && o.of(command)) found.push_back(&o);
    }
  }
  return found;
}

std::int64_t parse_integer(const std::string& flag, const std::string& text, std::int64_t lo, std::int64_t hi) {
  std::int64_t v = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, v);
  if (error != std::errc() || stop != end || text.empty() || v < lo || v > hi)
    wrong(flag, text, fmt::format("a whole number from {} to {}", lo, hi));
  return v;
}

double parse_number(const std::string& flag, const std::string& text, double lo, double hi) {
  double v = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, v);
  if (error != std::errc() || stop != end || text.empty() || !std::isfinite(v) || v < lo || v > hi) {
    wrong(flag, text, fmt::format("a number from {} to {}", lo, hi));
  }
  return v;
}

std::vector<int> parse_integers(const std::string& flag, const std::string& text, int lo, int hi) {
  std::vector<int> list;
  std::size_t at = 0;
  while (true) {
    const std::size_t comma = text.find(',', at);
    list.push_back(int(parse_integer(flag, text.substr(at, comma - at), lo, hi)));
    if (comma == text.npos) return list;
    at = comma + 1;
  }
}

}  // namespace lily
