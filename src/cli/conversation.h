// The messages of a chat, as a request body holds them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/answer.h"

namespace lily::cli {

class Conversation {
 public:
  using Json = nlohmann::ordered_json;

  /// `tools`: a JSON list as the OpenAI API has it, or null.
  Conversation(std::optional<std::string> system, Json tools, bool thinking);

  void add_user(const std::string& text);
  void add_answer(const Answer& answer);
  void add_tool_result(const ToolCall& call, const std::string& result);
  std::size_t size() const { return messages_.size(); }
  void shorten(std::size_t size) { messages_.erase(messages_.begin() + std::ptrdiff_t(size), messages_.end()); }
  /// Only the system message is left.
  void reset();

  /// What `lily template --messages` would take.
  Json body() const;
  /// As written by body(), switches of thinking included: where the body has none, the present ones stay. Error that
  /// names the field at fault; the conversation is then as before. Returns the fields that have no effect.
  std::vector<std::string> replace_by(const Json& body);

 private:
  std::optional<std::string> system_;
  Json tools_;
  bool thinking_;
  std::optional<bool> preserve_thinking_;
  Json messages_ = Json::array();
};

}  // namespace lily::cli
