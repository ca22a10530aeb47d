#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/output_file.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/line_reader.h"
#include "cli/load.h"
#include "cli/output.h"
#include "text/json_text.h"

namespace lily::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHelp =
    "/reset        begin anew\n"
    "/save FILE    write the conversation (JSON, as `lily template --messages` reads it)\n"
    "/load FILE    go on with a saved one\n"
    "/stats        tokens and speeds\n"
    "/quit         leave; so does Ctrl-D\n"
    "Ctrl-C stops an answer. A line that begins with // is sent with one / less.\n";

// A typed line that begins with one / is a command; with two, words that begin with one.
bool is_command(const std::string& line) { return line.starts_with('/') && !line.starts_with("//"); }
std::string words_of(const std::string& line) { return line.starts_with("//") ? line.substr(1) : line; }

Json read_tools(const std::string& file) {
  if (file.empty()) return nullptr;
  const std::string text = read_file("--tools", file);
  return about("--tools " + file, [&] {
    Json tools = parse_json(text);
    parse_chat(Json{{"messages", {{{"role", "user"}, {"content", ""}}}}, {"tools", tools}});  // for its errors
    return tools;
  });
}

class Chat {
 public:
  Chat(const Settings& s)
      : settings_(s),
        tools_(read_tools(s.tools_file)),
        ready_(load(s, s.max_context)),
        tokenizer_(load_tokenizer(ready_)),
        prompter_(ready_.dir, tokenizer_),
        session_(ready_.engine->session()),
        sampling_(sampler_options(s, ready_.dir)),
        conversation_(s.system, tools_, !s.no_think) {
    set_tools(tools_);
  }

  void run() {
    if (lines_.interactive()) {
      note("/help lists the commands");
      interrupt_.emplace();
    }
    while (const auto line = next_line()) {
      if (line->empty()) continue;
      if (is_command(*line)) {
        if (!obey(*line)) return;
        continue;
      }
      turn(words_of(*line));
    }
  }

 private:
  void note(const std::string& text) const { log_info(text); }

  std::optional<std::string> next_line() {
    while (true) {
      try {
        return lines_.read("> ");
      } catch (const Error& e) {
        if (e.code() != ErrorCode::invalid_argument) throw;
        note(e.what());
      }
    }
  }

  void set_tools(const Json& tools) {
    tools_ = tools;
    schemas_ = tools.is_null() ? ToolSchemas() : ToolSchemas(tools);
  }

  /// False: leave.
  bool obey(const std::string& line) {
    const std::size_t space = line.find(' ');
    const std::string command = line.substr(0, space);
    const std::string file = space == line.npos ? "" : line.substr(space + 1);
    try {
      if (command == "/quit" || command == "/exit") return false;
      if (command == "/help") {
        for (std::string_view rest = kHelp; !rest.empty(); rest.remove_prefix(rest.find('\n') + 1)) {
          note(std::string(rest.substr(0, rest.find('\n'))));
        }
      } else if (command == "/reset") {
        conversation_.reset();
        note("the conversation begins anew");
      } else if (command == "/stats") {
        stats();
      } else if ((command == "/save" || command == "/load") && file.empty()) {
        note(fmt::format("{} needs a file name", command));
      } else if (command == "/save") {
        write_text_file(file, conversation_.body().dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
        note(fmt::format("{}: {} messages", file, conversation_.size()));
      } else if (command == "/load") {
        load_conversation(file);
      } else {
        note(fmt::format("unknown command {}: /help lists them", shortened(command, 40)));
      }
    } catch (const Error& e) {
      note(e.what());
    }
    return true;
  }

  void load_conversation(const std::string& file) {
    const std::string text = read_file("/load", file);
    about("/load " + file, [&] {
      const Json body = parse_json(text);
      const std::vector<std::string> idle = conversation_.replace_by(body);
      if (body.contains("tools")) set_tools(body["tools"]);
      if (!idle.empty()) note(fmt::format("{}: ignored, without effect here: {}", file, fmt::join(idle, ", ")));
    });
    note(fmt::format("{}: {} messages", file, conversation_.size()));
  }

  void stats() const {
    if (last_.ids.empty()) return note("nothing was answered yet");
    note(stats_line(last_));
    note(fmt::format("{} of {} tokens of the context window are in use", session_->tokens().size(),
                     ready_.engine->max_context()));
  }

  /// A question and all that follows from it: the answer, and as long as it calls tools, their results and the next
  /// answer.
  void turn(const std::string& question) {
    const std::size_t before = conversation_.size();
    conversation_.add_user(question);
    try {
      while (step()) {
      }
    } catch (const Error& e) {
      conversation_.shorten(before);  // what was not answered is not remembered
      note(e.code() == ErrorCode::cancelled ? "stopped" : e.what());
      if (e.code() == ErrorCode::invalid_argument)
        note("the question was not added to the conversation; /reset begins anew");
    }
  }

  /// One answer; true when it called tools and the model is to go on with their results.
  bool step() {
    Sampler sampler(next_sampling());
    const AnswerOptions options{.max_tokens = settings_.max_tokens.value_or(0),
                                .tools = tools_.is_null() ? nullptr : &schemas_};
    std::optional<Interrupt> during_answer;  // from a pipe, Ctrl-C between answers ends the program as usual
    if (!interrupt_) during_answer.emplace();
    Interrupt& interrupt = interrupt_ ? *interrupt_ : *during_answer;
    interrupt.clear();
    const Answer a = answer(*session_, prompter_.chat(conversation_.body()), sampler, tokenizer_, options, interrupt);
    during_answer.reset();
    last_ = a.generated;
    if (settings_.stats) note(stats_line(last_));
    if (a.generated.finish == Finish::length)
      note("the answer was cut: --max-tokens, or the end of the context window");
    if (a.generated.finish == Finish::stopped) note("stopped");
    conversation_.add_answer(a);
    for (const ToolCall& call : a.calls) {
      put(fmt::format("{}({})\n", call.name, call.arguments));
      note("type what the tool gave back (Ctrl-D: it failed; a line that begins with /: drop the question)");
      const auto result = lines_.read(fmt::format("result of {}> ", call.name));
      if (result && is_command(*result)) throw Error(ErrorCode::cancelled, "the question was dropped");
      conversation_.add_tool_result(call, result ? words_of(*result) : "error: the user gave no result");
    }
    return !a.calls.empty();
  }

  /// The given seed fixes the whole conversation: every answer has its own seed, made from it.
  SamplerOptions next_sampling() {
    SamplerOptions o = sampling_;
    if (o.seed) *o.seed += answers_++;
    return o;
  }

  const Settings& settings_;
  Json tools_;
  ToolSchemas schemas_;
  Ready ready_;
  Tokenizer tokenizer_;
  Prompter prompter_;
  std::unique_ptr<Session> session_;
  SamplerOptions sampling_;
  Conversation conversation_;
  LineReader lines_;
  std::optional<Interrupt>
      interrupt_;  // on a terminal, all the time: a Ctrl-C just after the answer's end must not end all
  Generated last_;
  std::uint64_t answers_ = 0;
};

}  // namespace

void cmd_chat(const Settings& s) {
  Chat(s).run();
}

}  // namespace lily::cli
