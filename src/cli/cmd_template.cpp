#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/output.h"
#include "model/find.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lily::cli {

void cmd_template(const Settings& s) {
  const auto dir = find_model(s.model);
  const std::string body = read_file("--messages", s.messages_file);
  const std::string from = "--messages " + s.messages_file;
  const ChatInput input = about(from, [&] { return parse_chat_text(body); });
  const std::vector<std::string> idle = input.idle();
  if (!idle.empty()) log_warning(fmt::format("{}: ignored, without effect on the prompt: {}", from, fmt::join(idle, ", ")));
  const TemplateChoice choice = choose_template(dir);
  if (!choice.warning.empty()) log_warning(choice.warning);
  const RenderedPrompt prompt = render_chat(input, choice.style);
  if (!s.ids) return put(prompt.text());
  put(fmt::format("[{}]\n", fmt::join(Tokenizer::load(dir).encode(prompt.segments), ", ")));
}

}  // namespace lily::cli
