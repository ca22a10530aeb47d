#include "text/tool_syntax.h"

#include <algorithm>

namespace lily::tool_syntax {
namespace {

constexpr size_t kMaxSpace = 64;
constexpr size_t kMaxName = 256;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// `more` when one of the answers is, else `no`.
Match undecided(std::initializer_list<Match> answers) {
  return std::find(answers.begin(), answers.end(), Match::more) == answers.end() ? Match::no : Match::more;
}

// What follows the </function> that follows a closed parameter. A real end is followed by </tool_call>, another call,
// the end of the text or prose; where </parameter> follows instead, all this was an example inside the value.
ValuePart after_function(Cursor c, size_t tags_at, int depth) {
  const ValuePart nested{ValuePart::Kind::nested_close, c.at()};
  const ValuePart more{ValuePart::Kind::more}, end{ValuePart::Kind::end, tags_at};
  if (c.space() == Match::more) return more;
  if (c.at_end()) return end;
  const Match close = c.literal(kCallClose);
  if (close == Match::more) return more;
  if (close == Match::yes) {
    if (c.space() == Match::more) return more;
    if (c.at_end()) return end;
  }
  const Match again = c.literal(kParameterClose);
  if (again == Match::more) return more;
  return depth > 0 || again == Match::yes ? nested : end;
}

// `c` is behind a </parameter>.
ValuePart after_parameter(Cursor c, int depth, const std::function<bool(const std::string&)>& may_follow) {
  const ValuePart text{ValuePart::Kind::text, 1}, more{ValuePart::Kind::more};
  const Match space = c.space();
  if (space != Match::yes) return space == Match::more ? more : text;
  const ValuePart end{ValuePart::Kind::end, c.at()};
  if (c.at_end()) return end;
  std::string name;
  const Match parameter = c.name_tag(kParameterOpen, name);
  if (parameter == Match::yes) return depth == 0 && may_follow(name) ? end : text;
  const size_t tags_at = c.at();
  const Match function = c.literal(kFunctionClose);
  if (function == Match::yes) return after_function(c, tags_at, depth);
  const Match call = c.literal(kCallClose);
  if (call == Match::yes) {  // without </function>: only where the call can be seen to end
    const Match after = c.space();
    if (after == Match::more) return more;
    const Match next = c.literal(kCallOpen);
    if (c.at_end() || next == Match::yes) return end;
    return next == Match::more ? more : text;
  }
  return undecided({parameter, function, call}) == Match::more ? more : text;
}

// Closing tags without </parameter> end the value only where the text ends with them.
ValuePart closing_tail(Cursor c) {
  const ValuePart text{ValuePart::Kind::text, 1}, more{ValuePart::Kind::more};
  const size_t tags_at = c.at();
  const Match function = c.literal(kFunctionClose);
  if (function == Match::more) return more;
  if (function == Match::yes && c.space() == Match::more) return more;
  const Match call = c.literal(kCallClose);
  if (call == Match::more) return more;
  if (call == Match::yes && c.space() == Match::more) return more;
  const bool any = function == Match::yes || call == Match::yes;
  return any && c.at_end() ? ValuePart{ValuePart::Kind::end, tags_at} : text;
}

// An example inside the value: a function that has a parameter.
ValuePart nested_function(Cursor c) {
  const ValuePart text{ValuePart::Kind::text, 1}, more{ValuePart::Kind::more};
  std::string name;
  const Match function = c.name_tag(kFunctionOpen, name);
  if (function != Match::yes) return function == Match::more ? more : text;
  const ValuePart open{ValuePart::Kind::nested_open, c.at()};
  const Match space = c.space();
  if (space != Match::yes) return space == Match::more ? more : text;
  const Match parameter = c.name_tag(kParameterOpen, name);
  if (parameter == Match::yes) return open;
  return parameter == Match::more ? more : text;
}

}  // namespace

Match Cursor::literal(std::string_view wanted) {
  const std::string_view have = rest();
  if (have.starts_with(wanted)) {
    at_ += wanted.size();
    return Match::yes;
  }
  return !ended_ && wanted.starts_with(have) ? Match::more : Match::no;
}

Match Cursor::space() {
  size_t n = 0;
  while (n <= kMaxSpace && at_ + n < text_.size() && is_space(text_[at_ + n])) ++n;
  if (n > kMaxSpace) return Match::no;
  if (!ended_ && at_ + n == text_.size()) return Match::more;
  at_ += n;
  return Match::yes;
}

Match Cursor::name_tag(std::string_view open, std::string& name) {
  const size_t begin = at_;
  const Match opened = literal(open);
  if (opened != Match::yes) return opened;
  const size_t close = std::min(rest().find_first_of("<>\r\n"), rest().size());
  const bool closed = close < rest().size();
  const bool blank = std::all_of(rest().begin(), rest().begin() + static_cast<ptrdiff_t>(close), is_space);
  const bool good = close <= kMaxName && (closed ? rest()[close] == '>' && !blank : !ended_);
  name = rest().substr(0, std::min(close, kMaxName));
  at_ = closed && good ? at_ + close + 1 : begin;
  if (!good) return Match::no;
  return closed ? Match::yes : Match::more;
}

ValuePart value_part(std::string_view rest, bool ended, int depth,
                     const std::function<bool(const std::string&)>& may_follow) {
  const ValuePart text{ValuePart::Kind::text, 1}, more{ValuePart::Kind::more};
  Cursor c(rest, ended);
  // One newline before a closing tag belongs to the markup.
  const Match newline = rest[0] == '\r' ? c.literal("\r\n") : rest[0] == '\n' ? c.literal("\n") : Match::yes;
  if (newline != Match::yes) return newline == Match::more ? more : text;
  if (c.at_end()) return {ValuePart::Kind::end, rest.size()};
  Cursor tags = c;
  const Match parameter = tags.literal(kParameterClose);
  if (parameter == Match::yes) return after_parameter(tags, depth, may_follow);
  if (parameter == Match::more) return more;
  const ValuePart tail = closing_tail(c);
  if (tail.kind != ValuePart::Kind::text || rest[0] != '<') return tail;
  return nested_function(c);
}

}  // namespace lily::tool_syntax
