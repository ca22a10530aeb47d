// Finds tool calls in the text a model writes, as it is written.
//
//   <tool_call>
//   <function=NAME>
//   <parameter=KEY>
//   VALUE
//   </parameter>
//   </function>
//   </tool_call>
//
// Rules, each of which users of this format needed:
// - One newline on each side of a value is markup ("\r\n" counts as one); all else is the value, exactly.
// - </parameter> ends a value only where another parameter (one not given yet), </function> or the end of the text
//   follows. A function with parameters inside a value is an example and is kept whole.
// - A string value goes out while it is written. Values of other types wait for their end, since their JSON depends
//   on it (tool_schema.h).
// - Missing closing tags at the end of the text are forgiven. A call whose function was closed is never lost.
// - A bare <function=…> without <tool_call>, and JSON inside <tool_call>, are calls only if the tool was offered, the
//   block is complete and the answer holds nothing else; otherwise they are text. So they are known at the end only.
// - Inside a Markdown code fence or behind a backtick the tags are text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tool_schema.h"

namespace lily {

struct ToolEvent {
  enum class Kind {
    text,        // `text` is part of the answer
    call_begin,  // call `index` begins: `text` is the function's name, `id` the id of the call
    arguments,   // `text` goes on the end of the call's arguments, which are JSON once the call has ended
    call_end,    // the call is complete
  };
  Kind kind;
  int index = 0;  // of the call: 0, 1, 2…
  std::string text;
  std::string id;
};

/// Why the text ended.
enum class TextEnd {
  complete,   // the model ended its turn
  truncated,  // it was stopped (a limit, a cancel): what stands open stays open
};

/// Whether the opening tag of a call can hold this name.
bool is_callable_name(std::string_view name);

class ToolCallParser {
 public:
  struct Options {
    bool enabled = true;   // false: everything is text (tool_choice none, or no tools)
    bool parallel = true;  // false: the text ends with the first call; see done()
  };

  ToolCallParser(ToolSchemas schemas, Options options) : schemas_(std::move(schemas)), options_(options) {}

  /// The events that are certain after this piece. However the text is cut into pieces, the joined events are equal.
  std::vector<ToolEvent> push(std::string_view text);
  std::vector<ToolEvent> finish(TextEnd end);

  /// Calls that were completed, each delivered in full. `finish_reason` is "tool_calls" if and only if this is not 0.
  int completed_calls() const { return completed_; }
  /// With parallel off: a call is complete and whatever follows is ignored, so generating can stop.
  bool done() const { return state_ == State::done; }

 private:
  enum class State {
    text,        // outside calls
    head,        // after <function=NAME>, before the first parameter
    between,     // between parameters
    value,       // inside a value
    after_call,  // after </function>
    json,        // inside a <tool_call> that holds JSON
    done,
  };

  void run(bool ended);
  bool step(bool ended);  // false: more text is needed
  bool step_text(bool ended);
  bool step_tag(bool ended);
  bool step_head(bool ended);
  bool step_between(bool ended);
  bool step_value(bool ended);
  bool step_after_call(bool ended);
  bool step_json(bool ended);

  void begin_head(const std::string& name, size_t length);
  void reject_head();
  void begin_recovering();
  void end_recovering(bool is_call);
  void begin_call();
  void begin_value(std::string name);
  void add_value(std::string_view text);
  void end_value();
  void end_call();
  void emit_text(std::string_view text);
  void emit(ToolEvent event);
  void emit_arguments(std::string text);
  void take(size_t n);  // consumes input that is no answer text (unless the call is taken back)
  bool deliver_json(std::string_view text);

  ToolSchemas schemas_;
  Options options_;
  State state_ = State::text;
  std::string buffer_;  // input not yet judged
  size_t at_ = 0;       // how much of it is done with
  std::vector<ToolEvent> events_;

  // Answer text.
  std::string newlines_;  // held back: dropped when a call follows
  bool blank_ = true;     // nothing but white space so far
  bool gap_ = false;      // nothing but white space since the last call
  bool fenced_ = false, line_start_ = true;
  int fence_ticks_ = 0;
  char last_char_ = '\n';

  // The call being read.
  std::string name_, raw_head_;
  std::vector<std::string> given_;  // names of its parameters
  ParameterType type_;
  std::string value_;  // what waits until the value's type is certain
  bool value_began_ = false, streaming_ = false, closed_ = false;
  int depth_ = 0;
  int next_index_ = 0, completed_ = 0;

  // A block that is a call only if nothing else is there: its events wait for the end.
  bool recovering_ = false;
  std::string recovered_text_;
  std::vector<ToolEvent> recovered_events_;
  int recovered_calls_ = 0, recovered_index_ = 0;
  size_t json_scan_ = 0;
  int json_attempts_ = 0;
};

}  // namespace lily
