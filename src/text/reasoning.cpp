#include "text/reasoning.h"

namespace lily {
namespace {
constexpr std::string_view kOpen = "<think>", kClose = "</think>";
}

ReasoningParser::ReasoningParser(bool starts_in_thinking)
    : state_(starts_in_thinking ? State::reasoning_start : State::content) {}

void ReasoningParser::flush_waiting(std::string& out) {
  out.append(newlines_, '\n');
  out += kClose.substr(0, matched_);
  if (newlines_ + matched_ > 0) state_ = State::reasoning;
  newlines_ = matched_ = 0;
}

void ReasoningParser::reasoning_char(char c, std::string& out) {
  if (c == kClose[matched_]) {
    if (++matched_ < kClose.size()) return;
    newlines_ = matched_ = 0;
    state_ = State::content_start;
    return;
  }
  // The tag begins with its only '<', so after a mismatch nothing shorter can have matched.
  if (matched_ > 0) flush_waiting(out);
  if (c == '\n') {
    if (state_ == State::reasoning) ++newlines_;
  } else if (c == kClose[0]) {
    matched_ = 1;
  } else {
    flush_waiting(out);
    out += c;
    state_ = State::reasoning;
  }
}

ReasoningParser::Delta ReasoningParser::push(std::string_view text) {
  Delta delta;
  size_t i = 0;
  while (i < text.size() && thinking()) reasoning_char(text[i++], delta.reasoning);
  if (state_ == State::content_start) {
    while (i < text.size() && text[i] == '\n') ++i;
    if (i < text.size()) state_ = State::content;
  }
  if (state_ == State::content) delta.content = text.substr(i);
  return delta;
}

ReasoningParser::Delta ReasoningParser::finish() {
  Delta delta;
  if (thinking()) flush_waiting(delta.reasoning);
  return delta;
}

bool ends_in_thinking(std::string_view prompt) {
  const size_t open = prompt.rfind(kOpen), close = prompt.rfind(kClose), turn = prompt.rfind("<|im_start|>");
  const auto after = [&](size_t other) { return other == std::string_view::npos || open > other; };
  return open != std::string_view::npos && after(close) && after(turn);
}

}  // namespace lily
