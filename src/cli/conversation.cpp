#include "cli/conversation.h"

#include "base/error.h"
#include "text/messages.h"

namespace lily::cli {

Conversation::Conversation(std::optional<std::string> system, Json tools, bool thinking)
    : system_(std::move(system)), tools_(std::move(tools)), thinking_(thinking) {
  reset();
}

void Conversation::reset() {
  messages_ = Json::array();
  if (system_) messages_.push_back({{"role", "system"}, {"content", *system_}});
}

void Conversation::add_user(const std::string& text) {
  messages_.push_back({{"role", "user"}, {"content", text}});
}

void Conversation::add_answer(const Answer& a) {
  Json message = {{"role", "assistant"}, {"content", a.content}};
  if (!a.reasoning.empty()) message["reasoning_content"] = a.reasoning;
  for (const ToolCall& c : a.calls) {
    message["tool_calls"].push_back(
        {{"id", c.id}, {"type", "function"}, {"function", {{"name", c.name}, {"arguments", c.arguments}}}});
  }
  messages_.push_back(std::move(message));
}

void Conversation::add_tool_result(const ToolCall& call, const std::string& result) {
  messages_.push_back({{"role", "tool"}, {"tool_call_id", call.id}, {"content", result}});
}

Conversation::Json Conversation::body() const {
  Json body = {{"messages", messages_}};
  if (!tools_.is_null()) body["tools"] = tools_;
  if (!thinking_) body["chat_template_kwargs"]["enable_thinking"] = false;
  if (preserve_thinking_) body["chat_template_kwargs"]["preserve_thinking"] = *preserve_thinking_;
  return body;
}

std::vector<std::string> Conversation::replace_by(const Json& body) {
  const ChatInput input = parse_chat(body);  // for its errors
  messages_ = body["messages"];
  if (body.contains("tools")) tools_ = body["tools"];
  if (input.enable_thinking) thinking_ = *input.enable_thinking;
  if (input.preserve_thinking) preserve_thinking_ = input.preserve_thinking;
  std::vector<std::string> idle = input.idle();
  if (!input.add_generation_prompt) idle.emplace_back("add_generation_prompt");
  return idle;
}

}  // namespace lily::cli
