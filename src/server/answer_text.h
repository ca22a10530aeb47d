// From tokens to what a client sees: reasoning, content, tool calls, the reason why it ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/generate.h"
#include "server/stop_finder.h"
#include "text/output_parser.h"
#include "text/stream_decoder.h"

namespace lily::server {

struct Call {
  std::string id, name, arguments;
};

/// What became certain with a token.
struct TextDelta {
  std::string reasoning, content;
  std::vector<ToolEvent> calls;  // call_begin, arguments, call_end
  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

struct AnswerTextOptions {
  bool raw = false;       // no reasoning, no calls: all is content
  bool thinking = false;  // the prompt ends inside a think block
  ToolSchemas tools;
  bool calls = false;     // tool calls are looked for
  bool parallel = true;
  std::vector<std::string> stop;  // in the content alone
};

class AnswerText {
 public:
  AnswerText(const Tokenizer& tokenizer, AnswerTextOptions options);

  TextDelta push(std::int32_t id);
  /// `finish`: why no more tokens come.
  TextDelta finish(Finish finish);
  /// Nothing that follows would be seen: a stop string was found, or the one call that was allowed is complete.
  bool complete() const { return stop_.found() || (!options_.raw && parser_.done()); }
  /// The answer is all that was generated: nothing was left out of it, as behind a stop string, in a call that the limit cut or in one
  /// call too many.
  bool whole() const { return finish_ == Finish::end_token && !stop_.found(); }
  /// The model had its say and there is nothing to show for it but thinking.
  bool silent() const { return finish_ == Finish::end_token && !reasoning_.empty() && content_.empty() && calls_.empty(); }
  bool thinking() const { return !options_.raw && parser_.thinking(); }

  // The whole answer, once finished.
  const std::string& reasoning() const { return reasoning_; }
  const std::string& content() const { return content_; }
  const std::vector<Call>& calls() const { return calls_; }  // the complete ones
  std::int64_t reasoning_tokens() const { return reasoning_tokens_; }
  /// "tool_calls" if and only if there are calls; else "stop" or "length".
  const char* finish_reason() const;

 private:
  TextDelta take(const std::string& text);
  void add(OutputParser::Delta delta, TextDelta& out);

  AnswerTextOptions options_;
  StreamDecoder decoder_;
  OutputParser parser_;
  StopFinder stop_;
  std::string reasoning_, content_;
  std::vector<Call> calls_;
  std::int64_t reasoning_tokens_ = 0;
  Finish finish_ = Finish::length;
};

}  // namespace lily::server
