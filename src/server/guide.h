// What a request asks of an answer beyond sampling: a call that must come, a call that must not, thinking that must end.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "server/request.h"
#include "text/reasoning.h"
#include "text/stream_decoder.h"

namespace lily::server {

struct GuideOptions {
  bool thinking = false;  // the prompt ends inside a think block
  std::optional<std::int64_t> thinking_budget;
  ToolChoice tool_choice = ToolChoice::automatic;
  std::vector<std::string> names;  // that a forced call may have
};

/// tool_choice required and named: after the thinking, the opening of a call is written for the model, and only names that are
/// offered may follow; the arguments are its own. none: the token that opens a call cannot come. A thinking budget: when it is used
/// up, a sentence that the model knows from its training and the end of the block are written for it.
class AnswerGuide final : public Guide {
 public:
  AnswerGuide(const Tokenizer& tokenizer, GuideOptions options);
  std::optional<std::int32_t> forced() override;
  bool restrict(std::span<float> logits) override;
  void accept(std::int32_t id) override;

 private:
  void write(const std::string& text, ControlTokens control);
  void open_call(bool after_thinking);

  const Tokenizer& tokenizer_;
  GuideOptions options_;
  StreamDecoder decoder_;
  ReasoningParser reasoning_;
  std::int64_t spent_ = 0;
  std::deque<std::int32_t> forced_;
  bool naming_ = false;         // a name is being chosen …
  std::string name_;            // … of which this has come
  std::int32_t call_opening_;   // <tool_call>
};

/// Null where nothing is asked.
std::unique_ptr<Guide> make_guide(const Tokenizer& tokenizer, const ApiRequest& request, bool thinking);

}  // namespace lily::server
