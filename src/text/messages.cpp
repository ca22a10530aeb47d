#include "text/messages.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/json_text.h"
#include "text/tool_schema.h"
#include "text/utf8.h"

namespace lily {
namespace {

using json = nlohmann::ordered_json;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, path + ": " + what);
}

std::string element(const std::string& list, size_t i) {
  return list + "[" + std::to_string(i) + "]";
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  append_json_escaped(out, std::string_view(text).substr(0, 64));
  return out + (text.size() > 64 ? "…'" : "'");
}

std::string string_or_empty(const json& v, const std::string& path) {
  if (v.is_null()) return {};
  if (!v.is_string()) fail(path, "expected a string or null, found " + kind_of(v));
  return v.get<std::string>();
}

class Ignored {
 public:
  explicit Ignored(std::vector<std::string>& paths) : paths_(paths) {}
  void add(const std::string& path) {
    if (std::find(paths_.begin(), paths_.end(), path) == paths_.end() && paths_.size() < 64) paths_.push_back(path);
  }
  void others(const json& object, const std::string& path, std::initializer_list<std::string_view> known) {
    for (const std::string& key : members_beyond(object, known)) add((path.empty() ? "" : path + ".") + key.substr(0, 64));
  }

 private:
  std::vector<std::string>& paths_;
};

// ---- content ----

void refuse_media(const json& part, const std::string& type, const std::string& path) {
  static constexpr const char* kMedia[] = {"image", "image_url",   "input_image", "video", "video_url",
                                           "audio", "input_audio", "audio_url",   "file",  "input_file"};
  for (const char* media : kMedia) {
    if (type == media || part.contains(media)) {
      fail(path, std::string("this model is text-only; a part of type '") + media + "' cannot be read");
    }
  }
}

std::string part_text(const json& part, const std::string& path, Ignored& ignored) {
  if (part.is_string()) return part.get<std::string>();
  if (!part.is_object()) fail(path, "expected an object with 'type' and 'text', found " + kind_of(part));
  const std::string type = string_or_empty(member(part, "type"), path + ".type");
  refuse_media(part, type, path);
  // A text of another kind (somebody's reasoning, say) is no part of what was said, so it is not read as if it were.
  if (!type.empty() && type != "text" && type != "input_text" && type != "output_text" && type != "refusal")
    fail(path + ".type", "unknown type " + quoted(type) + ", expected 'text'");
  ignored.others(part, "messages.content", {"type", "text", "refusal"});
  const json& text = type == "refusal" ? member(part, "refusal") : member(part, "text");
  if (!text.is_string()) fail(path, "expected a text in 'text', found " + kind_of(text));
  return text.get<std::string>();
}

std::string content_text(const json& content, const std::string& path, Ignored& ignored) {
  if (content.is_null()) return {};
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) fail(path, "expected a string, null or a list of parts, found " + kind_of(content));
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) text += part_text(content[i], element(path, i), ignored);
  return text;
}

// ---- tool calls ----

ToolArgument argument_of(const std::string& name, const json& value) {
  if (value.is_string()) return {name, value.get<std::string>(), ToolArgument::Kind::string};
  return {name, python_json(value), value.is_structured() ? ToolArgument::Kind::container : ToolArgument::Kind::scalar};
}

std::vector<ToolArgument> arguments_of_object(const json& object) {
  std::vector<ToolArgument> arguments;
  for (const auto& [name, value] : object.get_ref<const json::object_t&>())
    arguments.push_back(argument_of(name, value));
  return arguments;
}

std::vector<ToolArgument> read_arguments(const json& arguments) {
  if (arguments.is_null()) return {};
  if (arguments.is_object()) return arguments_of_object(arguments);
  if (!arguments.is_string()) return {argument_of("arguments", arguments)};
  const auto& text = arguments.get_ref<const std::string&>();
  if (python_strip(text).empty()) return {};
  try {
    const json parsed = parse_json(text);
    if (parsed.is_object()) return arguments_of_object(parsed);
  } catch (const Error&) {
    // No JSON: the model wrote it so, and it goes back to the model as it is.
  }
  return {{"arguments", text, ToolArgument::Kind::string}};
}

PastToolCall read_tool_call(const json& call, const std::string& path, Ignored& ignored) {
  if (!call.is_object()) fail(path, "expected an object, found " + kind_of(call));
  const json& wrapped = member(call, "function");
  if (!wrapped.is_null() && !wrapped.is_object())
    fail(path + ".function", "expected an object, found " + kind_of(wrapped));
  const json& function = wrapped.is_object() ? wrapped : call;
  const std::string name_path = path + (wrapped.is_object() ? ".function.name" : ".name");
  const json& name = member(function, "name");
  if (!name.is_string() || name.get_ref<const std::string&>().empty()) {
    fail(name_path, "expected the function's name, found " + kind_of(name));
  }
  const std::string id = string_or_empty(member(call, "id"), path + ".id");
  const std::string type = string_or_empty(member(call, "type"), path + ".type");
  if (!type.empty() && type != "function") ignored.add("messages.tool_calls.type");
  if (wrapped.is_object()) {
    ignored.others(call, "messages.tool_calls", {"id", "type", "index", "function"});
    ignored.others(function, "messages.tool_calls.function", {"name", "arguments"});
  } else {
    ignored.others(call, "messages.tool_calls", {"id", "type", "index", "name", "arguments"});
  }
  return {id, name.get<std::string>(), read_arguments(member(function, "arguments"))};
}

std::vector<PastToolCall> read_tool_calls(const json& message, const std::string& path, Ignored& ignored) {
  std::vector<PastToolCall> calls;
  const json& list = member(message, "tool_calls");
  if (!list.is_null() && !list.is_array()) fail(path + ".tool_calls", "expected a list, found " + kind_of(list));
  for (size_t i = 0; i < list.size(); ++i) calls.push_back(read_tool_call(list[i], element(path + ".tool_calls", i), ignored));
  const json& old_form = member(message, "function_call");
  if (calls.empty() && !old_form.is_null()) {
    calls.push_back(read_tool_call(old_form, path + ".function_call", ignored));
  } else if (!old_form.is_null()) {
    ignored.add("messages.function_call");
  }
  return calls;
}

// ---- messages ----

ChatRole read_role(const json& message, const std::string& path) {
  const json& role = member(message, "role");
  const std::string expected = ", expected system, developer, user, assistant or tool";
  if (!role.is_string()) fail(path + ".role", "found " + kind_of(role) + expected);
  const auto& name = role.get_ref<const std::string&>();
  if (name == "system" || name == "developer") return ChatRole::system;
  if (name == "user") return ChatRole::user;
  if (name == "assistant") return ChatRole::assistant;
  if (name == "tool") return ChatRole::tool;
  fail(path + ".role", "unknown role " + quoted(name) + expected);
}

Message read_message(const json& source, const std::string& path, Ignored& ignored) {
  if (!source.is_object()) fail(path, "expected an object with 'role' and 'content', found " + kind_of(source));
  Message message;
  message.role = read_role(source, path);
  message.content = content_text(member(source, "content"), path + ".content", ignored);
  // Where some clients put pictures, beside the content.
  const json& images = member(source, "images");
  if (!images.is_null() && !images.empty()) fail(path + ".images", "this model is text-only; images cannot be read");
  if (message.role == ChatRole::assistant) {
    for (const char* key : {"reasoning_content", "reasoning"}) {
      const json& reasoning = member(source, key);
      const bool wanted = !message.reasoning || message.reasoning->empty();  // one name may stand there empty
      if (reasoning.is_string() && wanted) message.reasoning = reasoning.get<std::string>();
      if (reasoning.is_string() || reasoning.is_null()) continue;
      // `reasoning` is also where some clients keep an object of their own; the other name has one meaning.
      if (std::string_view(key) == "reasoning_content")
        fail(path + ".reasoning_content", "expected a string or null, found " + kind_of(reasoning));
      ignored.add(std::string("messages.") + key);
    }
    message.tool_calls = read_tool_calls(source, path, ignored);
    const std::string refusal = string_or_empty(member(source, "refusal"), path + ".refusal");
    if (message.content.empty()) message.content = refusal;
    ignored.others(source, "messages",
                   {"role", "content", "reasoning_content", "reasoning", "tool_calls", "function_call", "refusal"});
  } else if (message.role == ChatRole::tool) {
    message.tool_call_id = string_or_empty(member(source, "tool_call_id"), path + ".tool_call_id");
    ignored.others(source, "messages", {"role", "content", "tool_call_id"});
  } else {
    ignored.others(source, "messages", {"role", "content"});
  }
  return message;
}

// Adds a leading system message to the first one, with a blank line between.
void merge_system(Message& first, const std::string& content) {
  const std::string_view before = python_strip(first.content), added = python_strip(content);
  if (added.empty()) return;
  first.content = before.empty() ? std::string(added) : std::string(before) + "\n\n" + std::string(added);
}

void read_messages(const json& body, ChatInput& input, Ignored& ignored) {
  const json& list = member(body, "messages");
  if (!list.is_array()) fail("messages", "expected a list of messages, found " + kind_of(list));
  if (list.empty()) fail("messages", "expected one message or more, found none");
  for (size_t i = 0; i < list.size(); ++i) {
    Message message = read_message(list[i], element("messages", i), ignored);
    const bool leading =
        input.messages.size() == 1 && input.messages[0].role == ChatRole::system && i > 0 && message.role == ChatRole::system;
    if (leading) {
      merge_system(input.messages[0], message.content);
    } else {
      input.messages.push_back(std::move(message));
    }
  }
}

void read_tool(const json& tool, const std::string& path, Ignored& ignored) {
  if (!tool.is_object()) fail(path, "expected an object, found " + kind_of(tool));
  const json& wrapped = member(tool, "function");
  if (!wrapped.is_null() && !wrapped.is_object())
    fail(path + ".function", "expected an object, found " + kind_of(wrapped));
  const bool flat = wrapped.is_null();
  const json& function = flat ? tool : wrapped;
  const std::string at = flat ? path : path + ".function";
  const json& name = member(function, "name");
  if (!name.is_string() || name.get_ref<const std::string&>().empty()) {
    fail(at + ".name", "expected the function's name, found " + (name == "" ? "an empty string" : kind_of(name)));
  }
  string_or_empty(member(function, "description"), at + ".description");
  for (const char* key : {"parameters", "input_schema"})
    check_tool_schema(member(function, key), at + "." + key, [&](const std::string& unread) { ignored.add(unread); });
  const json& strict = member(function, "strict");
  if (!strict.is_null() && !strict.is_boolean())
    fail(at + ".strict", "expected true or false, found " + kind_of(strict));
  if (strict == true) ignored.add(flat ? "tools.strict" : "tools.function.strict");  // arguments are not constrained
}

void read_tools(const json& body, ChatInput& input, Ignored& ignored) {
  const json& list = member(body, "tools");
  if (list.is_null()) return;
  if (!list.is_array()) fail("tools", "expected a list, found " + kind_of(list));
  for (size_t i = 0; i < list.size(); ++i) {
    read_tool(list[i], element("tools", i), ignored);
    input.tools.push_back(python_json(list[i]));
  }
}

// ---- options ----

std::optional<bool> read_flag(const json& object, const char* key, const std::string& path) {
  const json& v = member(object, key);
  if (v.is_null()) return std::nullopt;
  if (!v.is_boolean()) fail(path, "expected true or false, found " + kind_of(v));
  return v.get<bool>();
}

std::optional<bool> read_effort(const json& effort, const std::string& path) {
  if (effort.is_null()) return std::nullopt;
  static constexpr const char* kLevels[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
  if (!effort.is_string() || std::find(std::begin(kLevels), std::end(kLevels), effort) == std::end(kLevels)) {
    fail(path, "expected none, minimal, low, medium, high, xhigh or max, found " +
                   (effort.is_string() ? quoted(effort.get<std::string>()) : kind_of(effort)));
  }
  return effort != "none";
}

std::optional<bool> read_thinking_type(const json& thinking, const std::string& path) {
  const json& type = member(thinking, "type");
  if (type.is_null()) return std::nullopt;
  if (type == "disabled") return false;
  if (type == "enabled" || type == "adaptive") return true;
  fail(path + ".type", "expected enabled, disabled or adaptive, found " +
                           (type.is_string() ? quoted(type.get<std::string>()) : kind_of(type)));
}

const json& kwargs_of(const json& object, const std::string& prefix) {
  const json& kwargs = member(object, "chat_template_kwargs");
  if (!kwargs.is_null() && !kwargs.is_object()) {
    fail(prefix + "chat_template_kwargs", "expected an object, found " + kind_of(kwargs));
  }
  return kwargs;
}

// Every spelling is read, so that a wrong value is an error even where another spelling decides.
std::optional<bool> read_thinking(const json& object, const std::string& prefix) {
  for (const char* key : {"thinking", "reasoning"}) {
    const json& options = member(object, key);
    if (!options.is_null() && !options.is_object())
      fail(prefix + key, "expected an object, found " + kind_of(options));
  }
  const json& reasoning = member(object, "reasoning");
  const std::optional<bool> spellings[] = {
      read_flag(kwargs_of(object, prefix), "enable_thinking", prefix + "chat_template_kwargs.enable_thinking"),
      read_flag(object, "enable_thinking", prefix + "enable_thinking"),
      read_thinking_type(member(object, "thinking"), prefix + "thinking"),
      read_effort(member(reasoning, "effort"), prefix + "reasoning.effort"),
      read_flag(reasoning, "enabled", prefix + "reasoning.enabled"),
      read_effort(member(object, "reasoning_effort"), prefix + "reasoning_effort"),
  };
  for (const auto& spelling : spellings) {
    if (spelling) return spelling;
  }
  return std::nullopt;
}

void read_options(const json& object, const std::string& prefix, ChatInput& input, Ignored& ignored) {
  const auto thinking = read_thinking(object, prefix);
  if (!input.enable_thinking) input.enable_thinking = thinking;
  const json& kwargs = kwargs_of(object, prefix);
  for (const auto& preserve :
       {read_flag(kwargs, "preserve_thinking", prefix + "chat_template_kwargs.preserve_thinking"),
        read_flag(object, "preserve_thinking", prefix + "preserve_thinking")}) {
    if (!input.preserve_thinking) input.preserve_thinking = preserve;
  }
  if (kwargs.is_object())
    ignored.others(kwargs, prefix + "chat_template_kwargs", {"enable_thinking", "preserve_thinking"});
}

void list_unread(const json& body, const json& extra, ChatInput& input) {
  Ignored unread(input.unread);
  unread.others(body, "",
                {"messages", "tools", "add_generation_prompt", "extra_body", "chat_template_kwargs", "enable_thinking",
                 "preserve_thinking", "thinking", "reasoning", "reasoning_effort"});
  if (extra.is_object())
    unread.others(extra, "extra_body",
                  {"chat_template_kwargs", "enable_thinking", "preserve_thinking", "thinking", "reasoning",
                   "reasoning_effort"});
}

}  // namespace

ChatInput parse_chat(const json& body) {
  if (!body.is_object()) fail("body", "expected an object with 'messages', found " + kind_of(body));
  ChatInput input;
  Ignored ignored(input.ignored);
  read_messages(body, input, ignored);
  read_tools(body, input, ignored);
  if (const auto flag = read_flag(body, "add_generation_prompt", "add_generation_prompt"))
    input.add_generation_prompt = *flag;
  read_options(body, "", input, ignored);
  const json& extra = member(body, "extra_body");
  if (!extra.is_null() && !extra.is_object()) fail("extra_body", "expected an object, found " + kind_of(extra));
  read_options(extra, "extra_body.", input, ignored);
  list_unread(body, extra, input);
  return input;
}

std::vector<std::string> ChatInput::idle() const {
  std::vector<std::string> fields = ignored;
  fields.insert(fields.end(), unread.begin(), unread.end());
  return fields;
}

ChatInput parse_chat_text(std::string_view body) {
  return parse_chat(parse_json(body));
}

}  // namespace lily
