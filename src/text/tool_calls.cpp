#include "text/tool_calls.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/unique_id.h"
#include "text/json_text.h"
#include "text/tool_syntax.h"
#include "text/utf8.h"

namespace lily {
namespace {

using namespace tool_syntax;
using json = nlohmann::ordered_json;

constexpr int kMaxJsonAttempts = 8;  // places where JSON inside <tool_call> may end

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

std::string escaped(std::string_view text) {
  std::string out;
  append_json_escaped(out, text);
  return out;
}

}  // namespace

bool is_callable_name(std::string_view name) {
  const std::string tag = std::string(kFunctionOpen) + std::string(name) + ">";
  std::string read;
  return Cursor(tag, true).name_tag(kFunctionOpen, read) == Match::yes && python_strip(read) == name;
}

// ---- input and output ----

std::vector<ToolEvent> ToolCallParser::push(std::string_view text) {
  if (!options_.enabled) {
    if (!text.empty()) emit({ToolEvent::Kind::text, 0, std::string(text), ""});
  } else {
    buffer_ += text;
    run(false);
  }
  return std::exchange(events_, {});
}

std::vector<ToolEvent> ToolCallParser::finish(TextEnd end) {
  if (!options_.enabled) return {};
  run(true);
  if (end == TextEnd::complete && !recovering_) {  // closing tags that are missing at the end are forgiven
    if (state_ == State::value) end_value();
    if (state_ == State::value || state_ == State::between) end_call();
  }
  if (recovering_) end_recovering(state_ == State::after_call);
  if (!gap_ && !newlines_.empty()) emit_text("");
  return std::exchange(events_, {});
}

void ToolCallParser::run(bool ended) {
  while (step(ended)) {
  }
  buffer_.erase(0, at_);
  at_ = 0;
}

bool ToolCallParser::step(bool ended) {
  switch (state_) {
    case State::text:
      return step_text(ended);
    case State::head:
      return step_head(ended);
    case State::between:
      return step_between(ended);
    case State::value:
      return step_value(ended);
    case State::after_call:
      return step_after_call(ended);
    case State::json:
      return step_json(ended);
    case State::done:
      at_ = buffer_.size();
      return false;
  }
  return false;
}

void ToolCallParser::emit(ToolEvent event) {
  auto& events = recovering_ ? recovered_events_ : events_;
  const bool joins = event.kind == ToolEvent::Kind::text || event.kind == ToolEvent::Kind::arguments;
  if (joins && !events.empty() && events.back().kind == event.kind && events.back().index == event.index) {
    events.back().text += event.text;
  } else {
    events.push_back(std::move(event));
  }
}

void ToolCallParser::emit_arguments(std::string text) {
  emit({ToolEvent::Kind::arguments, next_index_ - 1, std::move(text), ""});
}

void ToolCallParser::emit_text(std::string_view text) {
  const std::string all = std::exchange(newlines_, {}) + std::string(text);
  for (const char c : all) {
    if (!is_space(c)) blank_ = gap_ = false;
    // A line that begins with three backticks opens or closes a code fence.
    if (c == '`' && line_start_) {
      if (++fence_ticks_ == 3) fenced_ = !fenced_;
    } else {
      line_start_ = c == '\n' || (line_start_ && c == ' ' && fence_ticks_ == 0);
      fence_ticks_ = 0;
    }
    last_char_ = c;
  }
  emit({ToolEvent::Kind::text, 0, all, ""});
}

void ToolCallParser::take(size_t n) {
  if (recovering_) recovered_text_.append(buffer_, at_, n);
  at_ += n;
}

// ---- answer text ----

bool ToolCallParser::step_text(bool ended) {
  const std::string_view rest = std::string_view(buffer_).substr(at_);
  if (rest.empty()) return false;
  if (rest[0] == '<') return step_tag(ended);
  if (rest[0] == '\n' || (blank_ && is_space(rest[0]))) {
    newlines_ += rest[0];
    ++at_;
    return true;
  }
  const size_t n = std::min(rest.find_first_of("<\n"), rest.size());
  emit_text(rest.substr(0, n));
  at_ += n;
  return true;
}

bool ToolCallParser::step_tag(bool ended) {
  const std::string_view rest = std::string_view(buffer_).substr(at_);
  Cursor c(rest, ended);
  std::string name;
  const bool quoted = fenced_ || (newlines_.empty() && last_char_ == '`');
  if (!quoted) {
    const Match wrapper = c.literal(kCallOpen);
    if (wrapper == Match::more) return false;
    if (wrapper == Match::yes) {
      const Match space = c.space();
      if (space == Match::more) return false;
      const Match function = space == Match::yes ? c.name_tag(kFunctionOpen, name) : Match::no;
      if (function == Match::more) return false;
      if (function == Match::yes) {
        begin_head(name, c.at());
        return true;
      }
      if (blank_ && c.rest().starts_with('{')) {
        begin_recovering();
        take(c.at());
        state_ = State::json;
        json_scan_ = 0, json_attempts_ = 0;
        return true;
      }
    } else if (blank_) {
      const Match function = c.name_tag(kFunctionOpen, name);
      if (function == Match::more) return false;
      if (function == Match::yes && schemas_.has(python_strip(name))) {
        begin_recovering();
        begin_head(name, c.at());
        return true;
      }
    }
  }
  emit_text("<");
  ++at_;
  return true;
}

// ---- a block that counts only if nothing else is there ----

void ToolCallParser::begin_recovering() {
  recovering_ = true;
  recovered_text_ = std::exchange(newlines_, {});
  recovered_events_.clear();
  recovered_calls_ = 0;
  recovered_index_ = next_index_;
}

void ToolCallParser::end_recovering(bool is_call) {
  recovering_ = false;
  if (is_call) {
    for (ToolEvent& event : recovered_events_) {
      if (options_.parallel || event.index == recovered_index_) events_.push_back(std::move(event));
    }
    completed_ += options_.parallel ? recovered_calls_ : 1;
    gap_ = true;
  } else {
    next_index_ = recovered_index_;
    state_ = State::text;
    emit_text(std::exchange(recovered_text_, {}));
  }
}

bool ToolCallParser::step_json(bool ended) {
  const std::string_view rest = std::string_view(buffer_).substr(at_);
  const size_t close = rest.find(kCallClose, json_scan_);
  if (close == std::string_view::npos && !ended) {
    json_scan_ = rest.size() - std::min(rest.size(), kCallClose.size() - 1);
    return false;
  }
  const size_t end = std::min(close, rest.size());
  if (deliver_json(rest.substr(0, end))) {
    take(end);
    state_ = State::after_call;
  } else if (close == std::string_view::npos || ++json_attempts_ == kMaxJsonAttempts) {
    end_recovering(false);
  } else {
    json_scan_ = close + 1;
  }
  return true;
}

bool ToolCallParser::deliver_json(std::string_view text) {
  try {
    const json call = parse_json(text);
    if (!call.is_object()) return false;
    const json name = call.value("name", json());
    if (!name.is_string() || !schemas_.has(name.get_ref<const std::string&>())) return false;
    json arguments = call.value("arguments", json::object());
    if (arguments.is_string()) arguments = parse_json(arguments.get_ref<const std::string&>());
    if (!arguments.is_object()) return false;
    emit({ToolEvent::Kind::call_begin, next_index_++, name.get<std::string>(), unique_id("call_")});
    emit_arguments(python_json(arguments));
    emit({ToolEvent::Kind::call_end, next_index_ - 1, "", ""});
    ++recovered_calls_;
    return true;
  } catch (const Error&) {
    return false;
  }
}

// ---- calls ----

void ToolCallParser::begin_head(const std::string& name, size_t length) {
  name_ = python_strip(name);
  raw_head_ = buffer_.substr(at_, length);
  take(length);
  state_ = State::head;
}

void ToolCallParser::reject_head() {
  if (recovering_) return end_recovering(false);
  state_ = State::text;
  emit_text(std::exchange(raw_head_, {}));
}

bool ToolCallParser::step_head(bool ended) {
  const std::string_view rest = std::string_view(buffer_).substr(at_);
  if (rest.empty()) {
    if (ended) reject_head();
    return ended;
  }
  if (rest[0] == '<') {
    Cursor c(rest, ended);
    std::string parameter;
    const Match tags[] = {c.name_tag(kParameterOpen, parameter), c.literal(kFunctionClose), c.literal(kCallClose)};
    if (std::find(tags, tags + 3, Match::yes) != tags + 3) {
      begin_call();
      return true;
    }
    const Match again = c.literal(kCallOpen);
    if (again == Match::more || std::find(tags, tags + 3, Match::more) != tags + 3) return false;
    if (again == Match::yes) {
      reject_head();
      return true;
    }
  }
  // Words between the name and the first parameter are passed over only where the name says that this is a call.
  if (!is_space(rest[0]) && !schemas_.has(name_)) {
    reject_head();
    return true;
  }
  raw_head_ += rest[0];
  take(1);
  return true;
}

void ToolCallParser::begin_call() {
  newlines_.clear();
  given_.clear();
  closed_ = false;
  state_ = State::between;
  emit({ToolEvent::Kind::call_begin, next_index_++, name_, unique_id("call_")});
}

bool ToolCallParser::step_between(bool ended) {
  const std::string_view rest = std::string_view(buffer_).substr(at_);
  if (rest.empty()) return false;
  if (rest[0] == '<') {
    Cursor c(rest, ended);
    std::string name;
    const Match parameter = c.name_tag(kParameterOpen, name);
    if (parameter == Match::yes && std::find(given_.begin(), given_.end(), name) == given_.end()) {
      take(c.at());
      begin_value(std::move(name));
      return true;
    }
    const Match function = c.literal(kFunctionClose);
    if (function == Match::yes) {
      take(kFunctionClose.size());
      closed_ = true;
      end_call();
      return true;
    }
    const Match close = c.literal(kCallClose), open = c.literal(kCallOpen);
    if (close == Match::yes || open == Match::yes) {
      closed_ = close == Match::yes;
      end_call();
      return true;
    }
    for (const Match match : {parameter, function, close, open}) {
      if (match == Match::more) return false;
    }
  }
  take(1);  // white space, or something that belongs nowhere
  return true;
}

void ToolCallParser::end_call() {
  emit_arguments(given_.empty() ? "{}" : "}");
  emit({ToolEvent::Kind::call_end, next_index_ - 1, "", ""});
  ++(recovering_ ? recovered_calls_ : completed_);
  gap_ = true;
  state_ = options_.parallel || recovering_ ? State::after_call : State::done;
}

bool ToolCallParser::step_after_call(bool ended) {
  const std::string_view rest = std::string_view(buffer_).substr(at_);
  if (rest.empty()) return false;
  if (is_space(rest[0])) {
    take(1);
    return true;
  }
  Cursor c(rest, ended);
  std::string name;
  const Match close = c.literal(kCallClose);
  if (close == Match::yes) {
    take(kCallClose.size());
    if (!recovering_) state_ = State::text;
    return true;
  }
  if (close == Match::more) return false;
  const Match open = c.literal(kCallOpen);
  if (open == Match::more) return false;
  if (open == Match::yes && !recovering_) {
    state_ = State::text;
    return true;
  }
  if (c.space() == Match::more) return false;
  const Match function = c.name_tag(kFunctionOpen, name);  // a further call, in a wrapper of its own or in this one
  if (function == Match::more) return false;
  if (function == Match::yes) {
    begin_head(name, c.at());
  } else if (recovering_) {
    end_recovering(false);
  } else {
    state_ = State::text;
  }
  return true;
}

// ---- values ----

void ToolCallParser::begin_value(std::string name) {
  emit_arguments((given_.empty() ? "{\"" : ", \"") + escaped(name) + "\": ");
  type_ = schemas_.parameter(name_, name);
  given_.push_back(std::move(name));
  value_.clear();
  value_began_ = streaming_ = false;
  depth_ = 0;
  state_ = State::value;
}

void ToolCallParser::add_value(std::string_view text) {
  if (streaming_) return emit_arguments(escaped(text));
  value_ += text;
  if (is_certainly_string(type_, value_)) {
    streaming_ = true;
    emit_arguments("\"");
    emit_arguments(escaped(value_));
  }
}

void ToolCallParser::end_value() {
  emit_arguments(streaming_ ? "\"" : argument_json(type_, value_));
}

bool ToolCallParser::step_value(bool ended) {
  const std::string_view rest = std::string_view(buffer_).substr(at_);
  if (rest.empty() || (!value_began_ && rest == "\r" && !ended)) return false;
  if (!value_began_) {
    value_began_ = true;
    take(rest.starts_with("\r\n") ? 2 : rest.starts_with("\n") ? 1 : 0);
    return true;
  }
  const size_t plain = std::min(rest.find_first_of("<\r\n"), rest.size());
  if (plain > 0) {
    add_value(rest.substr(0, plain));
    take(plain);
    return true;
  }
  const auto may_follow = [&](const std::string& name) {
    return std::find(given_.begin(), given_.end(), name) == given_.end();
  };
  const ValuePart part = value_part(rest, ended, depth_, may_follow);
  if (part.kind == ValuePart::Kind::more) return false;
  if (part.kind == ValuePart::Kind::end) {
    take(part.length);
    end_value();
    state_ = State::between;
    return true;
  }
  if (part.kind == ValuePart::Kind::nested_open) ++depth_;
  if (part.kind == ValuePart::Kind::nested_close) depth_ = std::max(0, depth_ - 1);
  add_value(rest.substr(0, part.length));
  take(part.length);
  return true;
}

}  // namespace lily
