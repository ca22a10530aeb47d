#include "server/answer_text.h"

namespace lily::server {

AnswerText::AnswerText(const Tokenizer& tokenizer, AnswerTextOptions options)
    : options_(std::move(options)),
      decoder_(tokenizer),
      parser_(options_.thinking && !options_.raw, options_.tools, {.enabled = options_.calls, .parallel = options_.parallel}),
      stop_(options_.stop) {}

TextDelta AnswerText::push(std::int32_t id) {
  if (complete()) return {};
  if (thinking()) ++reasoning_tokens_;
  return take(decoder_.push(id));
}

TextDelta AnswerText::take(const std::string& text) {
  TextDelta out;
  if (options_.raw) {
    out.content = stop_.push(text);
    content_ += out.content;
  } else {
    add(parser_.push(text), out);
  }
  return out;
}

void AnswerText::add(OutputParser::Delta delta, TextDelta& out) {
  if (!stop_.found()) {
    out.reasoning += delta.reasoning;
    reasoning_ += delta.reasoning;
  }
  for (ToolEvent& e : delta.events) {
    if (stop_.found()) return;  // what the model wrote after a stop string was not asked for
    if (e.kind == ToolEvent::Kind::text) {
      const std::string text = stop_.push(e.text);
      out.content += text;
      content_ += text;
      continue;
    }
    if (e.kind == ToolEvent::Kind::call_begin) {
      // A stop string does not reach across a call.
      const std::string text = stop_.finish();
      out.content += text;
      content_ += text;
      if (stop_.found()) return;
      calls_.push_back({e.id, e.text, ""});
    } else if (e.kind == ToolEvent::Kind::arguments) {
      calls_.back().arguments += e.text;
    }
    out.calls.push_back(std::move(e));
  }
}

TextDelta AnswerText::finish(Finish finish) {
  finish_ = finish;
  TextDelta out = take(decoder_.finish());
  if (!options_.raw) add(parser_.finish(finish == Finish::end_token ? TextEnd::complete : TextEnd::truncated), out);
  const std::string text = stop_.finish();
  out.content += text;
  content_ += text;
  if (!options_.raw) calls_.resize(std::min(calls_.size(), std::size_t(parser_.completed_calls())));
  return out;
}

const char* AnswerText::finish_reason() const {
  if (!calls_.empty()) return "tool_calls";
  return finish_ == Finish::length && !complete() ? "length" : "stop";
}

}  // namespace lily::server
