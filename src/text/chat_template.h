// The chat template, written down as code: messages in, prompt out, byte for byte as the reference renders them.
//
// A checkpoint's own template file is never executed; its text only decides which of the two known ways to render.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "text/messages.h"
#include "text/segment.h"

namespace lily {

enum class TemplateStyle {
  qwen3_5,  // scalar arguments in Python style (True, None); no preserve_thinking
  qwen3_6,  // every argument that is no string as JSON; preserve_thinking
};

struct TemplateChoice {
  TemplateStyle style = TemplateStyle::qwen3_6;
  std::string warning;  // not empty when the checkpoint's template is none of those known
};

/// Decides by DIR/chat_template.jinja or, without one, `chat_template` of DIR/tokenizer_config.json; without either
/// the newer way.
TemplateChoice choose_template(const std::filesystem::path& dir);

/// The same for the text of a template.
TemplateChoice choose_template_text(std::string_view text);

struct RenderedPrompt {
  std::vector<TextSegment> segments;
  /// The prompt ends inside an open think block: what the model writes first is reasoning.
  bool thinking = false;
  std::string text() const;
};

/// Renders. It has no failure: what could be wrong with the messages was found by parse_chat.
///
/// Where the reference would raise an error it goes on as follows: a system message that is not the first is a turn of
/// its own; without a user message no turn counts as following one.
RenderedPrompt render_chat(const ChatInput& input, TemplateStyle style);

/// The two parts of an assistant's message as the template writes them: an inline think block is reasoning. Views into `message`.
struct AssistantParts {
  std::string_view reasoning, content;
};
AssistantParts assistant_parts(const Message& message);

/// The last message that is a user's question, not a tool's answer in a user's clothes: the template shows the reasoning of what
/// follows it. The last message where there is none.
std::size_t last_query(const std::vector<Message>& messages);

}  // namespace lily
