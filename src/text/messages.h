// A chat request's messages, tools and template options, checked and brought into one shape.
//
// What clients send varies: content as a string, null or parts; arguments as an object or as a string of JSON;
// reasoning under two names or inline; system messages anywhere. Whatever the shape of the JSON, the outcome is a
// ChatInput or an Error that names the message and the field.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lily {

enum class ChatRole { system, user, assistant, tool };

/// One argument of a past tool call.
struct ToolArgument {
  enum class Kind {
    string,     // `value` is the string itself
    scalar,     // a number, true, false or null, as JSON
    container,  // an object or a list, as JSON
  };
  std::string name;
  std::string value;
  Kind kind = Kind::string;
  bool operator==(const ToolArgument&) const = default;
};

struct PastToolCall {
  std::string id;
  std::string name;
  std::vector<ToolArgument> arguments;  // in the order sent
  bool operator==(const PastToolCall&) const = default;
};

struct Message {
  ChatRole role = ChatRole::user;
  std::string content;                   // parts joined; not trimmed
  std::optional<std::string> reasoning;  // where the client sent it in a field of its own
  std::vector<PastToolCall> tool_calls;  // of an assistant
  std::string tool_call_id;              // of a tool
  bool operator==(const Message&) const = default;
};

struct ChatInput {
  /// Leading system and developer messages are one message; later ones are system messages in their place.
  std::vector<Message> messages;
  std::vector<std::string> tools;  // each tool as the template writes it, on one line
  std::optional<bool> enable_thinking;
  std::optional<bool> preserve_thinking;
  bool add_generation_prompt = true;
  /// Fields that were met and have no effect, by path, e.g. "chat_template_kwargs.foo", each once.
  std::vector<std::string> ignored;
  /// Fields of the body (and of its extra_body) that are not read here, by path: the caller's to honour, refuse or list.
  std::vector<std::string> unread;
  /// Both: what has no effect where nobody reads the rest of the body.
  std::vector<std::string> idle() const;
};

/// Reads `messages`, `tools`, `add_generation_prompt`, `chat_template_kwargs` and the thinking switches of a request
/// body; the names of its other fields go to `unread`.
///
/// Thinking is switched by the first of these that is present: chat_template_kwargs.enable_thinking, enable_thinking,
/// thinking.type ("disabled" is off; "enabled" and "adaptive" are on), reasoning.effort and reasoning.enabled,
/// reasoning_effort ("none" is off, any other level on); the same fields inside an `extra_body` object come last.
ChatInput parse_chat(const nlohmann::ordered_json& body);

/// The same from JSON text.
ChatInput parse_chat_text(std::string_view body);

}  // namespace lily
