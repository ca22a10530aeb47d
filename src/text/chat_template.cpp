#include "text/chat_template.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/input_file.h"
#include "base/json_fault.h"
#include "text/tokenizer_file.h"
#include "text/utf8.h"

namespace lily {
namespace {

constexpr std::string_view kToolsBefore = "# Tools\n\nYou have access to the following functions:\n\n<tools>";

constexpr std::string_view kToolsAfter = R"(
</tools>

If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>

<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within <tool_call></tool_call> XML tags
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after
- If there is no function call available, answer the question like normal with your current knowledge and do not tell the user about function calls
</IMPORTANT>)";

constexpr std::string_view kThinkOpen = "<think>", kThinkClose = "</think>";
constexpr std::string_view kResponseOpen = "<tool_response>", kResponseClose = "</tool_response>";

// FNV-1a of the two templates with every run of white space as one space.
constexpr uint64_t kHashQwen35 = 0x85410c29c6b5f94eu, kHashQwen36 = 0x58aefc58e1feb2ceu;

uint64_t normalised_hash(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325u;
  const auto add = [&](char c) { hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u; };
  bool space = false;
  for (const char c : python_strip(text)) {
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
      space = true;
      continue;
    }
    if (space) add(' ');
    space = false;
    add(c);
  }
  return hash;
}

std::string_view strip_newlines_left(std::string_view s) {
  const size_t n = s.find_first_not_of('\n');
  return n == std::string_view::npos ? std::string_view() : s.substr(n);
}

std::string_view strip_newlines_right(std::string_view s) {
  const size_t n = s.find_last_not_of('\n');
  return n == std::string_view::npos ? std::string_view() : s.substr(0, n + 1);
}

// A user turn that is nothing but a tool's answer does not count as a question.
bool is_query(const Message& message) {
  const std::string_view content = python_strip(message.content);
  return message.role == ChatRole::user && !(content.starts_with(kResponseOpen) && content.ends_with(kResponseClose));
}

// How Python's str() writes a scalar that JSON writes so.
std::string_view python_scalar(std::string_view json) {
  if (json == "true") return "True";
  if (json == "false") return "False";
  if (json == "null") return "None";
  if (json == "Infinity") return "inf";
  if (json == "-Infinity") return "-inf";
  if (json == "NaN") return "nan";
  return json;
}

class Renderer {
 public:
  Renderer(const ChatInput& input, TemplateStyle style) : input_(input), style_(style) {}

  RenderedPrompt render() {
    const auto& messages = input_.messages;
    const bool system_first = !messages.empty() && messages[0].role == ChatRole::system;
    const size_t query = last_query(messages);
    if (!input_.tools.empty()) {
      tools_block(system_first ? python_strip(messages[0].content) : std::string_view());
    } else if (system_first) {
      turn("system", python_strip(messages[0].content));
    }
    Boundary boundary = prompt_.segments.empty() && pending_.empty() ? Boundary::none : Boundary::system_end;
    for (size_t i = system_first ? 1 : 0; i < messages.size(); ++i) {
      at(boundary);
      message(i, i > query);
      boundary = Boundary::message_end;
    }
    if (input_.add_generation_prompt) {
      at(Boundary::generation_prompt);
      const bool off = input_.enable_thinking && !*input_.enable_thinking;
      markup("<|im_start|>assistant\n");
      markup(off ? "<think>\n\n</think>\n\n" : "<think>\n");
      prompt_.thinking = !off;
    }
    flush();
    return std::move(prompt_);
  }

 private:
  // ---- output: markup is gathered until content or a boundary ends it ----
  void flush() {
    if (pending_.empty()) return;
    prompt_.segments.push_back({std::move(pending_), false, boundary_});
    pending_.clear();
    boundary_ = Boundary::none;
  }
  void at(Boundary boundary) {
    flush();
    boundary_ = boundary;
  }
  void markup(std::string_view text) { pending_ += text; }
  void content(std::string_view text) {
    if (text.empty()) return;
    flush();
    prompt_.segments.push_back({std::string(text), true, boundary_});
    boundary_ = Boundary::none;
  }

  void turn(std::string_view role, std::string_view text) {
    markup("<|im_start|>");
    markup(role);
    markup("\n");
    content(text);
    markup("<|im_end|>\n");
  }

  void tools_block(std::string_view system) {
    markup("<|im_start|>system\n");
    markup(kToolsBefore);
    for (const std::string& tool : input_.tools) {
      markup("\n");
      content(tool);
    }
    markup(kToolsAfter);
    if (!system.empty()) {
      markup("\n\n");
      content(system);
    }
    markup("<|im_end|>\n");
  }

  void message(size_t i, bool after_query) {
    const Message& message = input_.messages[i];
    switch (message.role) {
      case ChatRole::system:
        return turn("system", python_strip(message.content));
      case ChatRole::user:
        return turn("user", python_strip(message.content));
      case ChatRole::assistant:
        return assistant(message, after_query);
      case ChatRole::tool:
        return tool_answer(i);
    }
  }

  void assistant(const Message& message, bool after_query) {
    const AssistantParts parts = assistant_parts(message);
    const bool preserve = style_ == TemplateStyle::qwen3_6 && input_.preserve_thinking && *input_.preserve_thinking;
    markup("<|im_start|>assistant\n");
    if (preserve || after_query) {
      markup("<think>\n");
      content(parts.reasoning);
      markup("\n</think>\n\n");
    }
    content(parts.content);
    std::string_view before = python_strip(parts.content).empty() ? "" : "\n\n";
    for (const PastToolCall& call : message.tool_calls) {
      markup(before);
      tool_call(call);
      before = "\n";
    }
    markup("<|im_end|>\n");
  }

  void tool_call(const PastToolCall& call) {
    markup("<tool_call>\n<function=");
    content(call.name);
    markup(">\n");
    for (const ToolArgument& argument : call.arguments) {
      markup("<parameter=");
      content(argument.name);
      markup(">\n");
      const bool python = style_ == TemplateStyle::qwen3_5 && argument.kind == ToolArgument::Kind::scalar;
      content(python ? python_scalar(argument.value) : argument.value);
      markup("\n</parameter>\n");
    }
    markup("</function>\n</tool_call>");
  }

  // Answers of tools that follow each other share one user turn.
  void tool_answer(size_t i) {
    const auto& messages = input_.messages;
    if (i > 0 && messages[i - 1].role != ChatRole::tool) markup("<|im_start|>user");
    markup("\n<tool_response>\n");
    content(python_strip(messages[i].content));
    markup("\n</tool_response>");
    if (i + 1 == messages.size() || messages[i + 1].role != ChatRole::tool) markup("<|im_end|>\n");
  }

  const ChatInput& input_;
  TemplateStyle style_;
  RenderedPrompt prompt_;
  std::string pending_;
  Boundary boundary_ = Boundary::none;
};

// `chat_template` of tokenizer_config.json: a text, or a list of named ones of which "default" counts.
std::optional<std::string> template_of_config(const std::filesystem::path& dir) {
  const auto path = dir / "tokenizer_config.json";
  const auto text = read_optional_text_file(path);
  if (!text) return std::nullopt;
  const auto config = parse_json_file(*text, path.string());
  if (!config.is_object()) throw Error(ErrorCode::corrupt, path.string() + ": expected a JSON object");
  const auto it = config.find("chat_template");
  if (it == config.end() || it->is_null()) return std::nullopt;
  if (it->is_string()) return it->get<std::string>();
  if (it->is_array()) {
    for (const auto& entry : *it) {
      if (entry.is_object() && entry.contains("template") && entry["template"].is_string() && entry.contains("name") &&
          entry["name"] == "default") {
        return entry["template"].get<std::string>();
      }
    }
  }
  throw Error(ErrorCode::corrupt,
              path.string() + ": chat_template: expected a text, or a list with one named 'default'");
}

}  // namespace

AssistantParts assistant_parts(const Message& message) {
  const std::string_view content = python_strip(message.content);
  if (message.reasoning) return {python_strip(*message.reasoning), content};
  // Reasoning is what stands before the first closing tag, content what stands after the last.
  const size_t first = content.find(kThinkClose);
  if (first == std::string_view::npos) return {{}, content};
  std::string_view reasoning = strip_newlines_right(content.substr(0, first));
  const size_t open = reasoning.rfind(kThinkOpen);
  if (open != std::string_view::npos) reasoning.remove_prefix(open + kThinkOpen.size());
  const std::string_view after = content.substr(content.rfind(kThinkClose) + kThinkClose.size());
  return {python_strip(reasoning), strip_newlines_left(after)};
}

size_t last_query(const std::vector<Message>& messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    if (is_query(messages[i])) return i;
  }
  return messages.empty() ? 0 : messages.size() - 1;
}

std::string RenderedPrompt::text() const {
  std::string all;
  for (const TextSegment& segment : segments) all += segment.text;
  return all;
}

TemplateChoice choose_template_text(std::string_view text) {
  const bool newer = text.find("preserve_thinking") != std::string_view::npos;
  TemplateChoice choice{newer ? TemplateStyle::qwen3_6 : TemplateStyle::qwen3_5, ""};
  if (normalised_hash(text) != (newer ? kHashQwen36 : kHashQwen35)) {
    choice.warning = std::string("the checkpoint's chat template is not the known one of ") +
                     (newer ? "Qwen3.6" : "Qwen3.5") + "; prompts are rendered as by the known one";
  }
  return choice;
}

TemplateChoice choose_template(const std::filesystem::path& dir) {
  auto text = read_optional_text_file(dir / "chat_template.jinja");
  if (!text) text = template_of_config(dir);
  return text ? choose_template_text(*text) : TemplateChoice{};
}

RenderedPrompt render_chat(const ChatInput& input, TemplateStyle style) {
  return Renderer(input, style).render();
}

}  // namespace lily
