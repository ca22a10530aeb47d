// Parts the text a model writes into reasoning and answer.
//
// Whether it begins inside the think block is known from the prompt (RenderedPrompt::thinking), never guessed from
// the text. The first `</think>` closes the block; later ones are answer. Newlines at both ends of the reasoning and
// before the answer belong to the markup and are left out; nothing else is.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lily {

class ReasoningParser {
 public:
  struct Delta {
    std::string reasoning, content;
  };

  explicit ReasoningParser(bool starts_in_thinking);

  /// What is certain after this piece. A newline or the beginning of a tag waits while it may belong to `</think>`.
  Delta push(std::string_view text);
  /// Ends the text. In an open think block what waited is reasoning.
  Delta finish();
  bool thinking() const { return state_ == State::reasoning_start || state_ == State::reasoning; }

 private:
  enum class State { reasoning_start, reasoning, content_start, content };
  void reasoning_char(char c, std::string& out);
  void flush_waiting(std::string& out);

  State state_;
  size_t newlines_ = 0;  // waiting, before the tag
  size_t matched_ = 0;   // characters of the tag that wait
};

/// Whether a prompt rendered by someone else (raw text) ends inside an open think block of the last turn.
bool ends_in_thinking(std::string_view prompt);

}  // namespace lily
