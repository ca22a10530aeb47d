#include "server/guide.h"

#include <algorithm>
#include <cmath>

namespace lily::server {
namespace {

// Qwen's own words for a budget that ran out (its documentation of thinking budgets).
constexpr const char* kEnough =
    "\n\nConsidering the limited time by the user, I have to give the solution based on the thinking directly now.\n</think>\n\n";

}  // namespace

AnswerGuide::AnswerGuide(const Tokenizer& tokenizer, GuideOptions options)
    : tokenizer_(tokenizer),
      options_(std::move(options)),
      decoder_(tokenizer),
      reasoning_(options_.thinking),
      call_opening_(tokenizer.id_of("<tool_call>").value_or(-1)) {
  if (options_.thinking && options_.thinking_budget == 0) write("</think>\n\n", ControlTokens::parse);
  if (!options_.thinking) open_call(false);
}

void AnswerGuide::write(const std::string& text, ControlTokens control) {
  for (const std::int32_t id : tokenizer_.encode(text, control)) forced_.push_back(id);
}

void AnswerGuide::open_call(bool after_thinking) {
  if (options_.tool_choice != ToolChoice::required && options_.tool_choice != ToolChoice::named) return;
  write(std::string(after_thinking && forced_.empty() ? "\n\n" : "") + "<tool_call>", ControlTokens::parse);
  const std::string function = "\n<function=";
  // A name is the client's text: a control token spelled in it is none.
  if (options_.names.size() == 1) return write(function + options_.names[0] + ">\n", ControlTokens::as_text);
  write(function, ControlTokens::as_text);
  naming_ = true;
}

std::optional<std::int32_t> AnswerGuide::forced() {
  if (forced_.empty()) return std::nullopt;
  return forced_.front();
}

bool AnswerGuide::restrict(std::span<float> logits) {
  if (options_.tool_choice == ToolChoice::none && call_opening_ >= 0) {
    logits[std::size_t(call_opening_)] = -INFINITY;
    return true;
  }
  if (!naming_) return false;
  std::vector<std::string> left;  // what may follow
  for (const std::string& name : options_.names)
    if (const std::string whole = name + ">\n"; whole.starts_with(name_)) left.push_back(whole.substr(name_.size()));
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const std::string_view bytes = std::int32_t(id) < tokenizer_.vocab_size() ? tokenizer_.token_bytes(std::int32_t(id)) : std::string_view();
    const bool fits = !bytes.empty() && std::any_of(left.begin(), left.end(), [&](const std::string& text) { return text.starts_with(bytes); });
    if (!fits || tokenizer_.is_control(std::int32_t(id))) logits[id] = -INFINITY;
  }
  return true;
}

void AnswerGuide::accept(std::int32_t id) {
  const bool written = !forced_.empty();
  if (written) {
    forced_.pop_front();
  } else if (naming_) {
    name_ += tokenizer_.token_bytes(id);
    if (name_.find('>') != std::string::npos) naming_ = false;
  }
  if (!reasoning_.thinking()) return;
  ++spent_;
  reasoning_.push(decoder_.push(id));
  if (!reasoning_.thinking()) return open_call(true);
  if (!written && options_.thinking_budget && spent_ >= *options_.thinking_budget) write(kEnough, ControlTokens::parse);
}

std::unique_ptr<Guide> make_guide(const Tokenizer& tokenizer, const ApiRequest& r, bool thinking) {
  const bool choice = !r.tool_names.empty() && r.tool_choice != ToolChoice::automatic;
  const bool budget = thinking && r.thinking_budget;
  if (!r.chat || (!choice && !budget)) return nullptr;
  GuideOptions o{.thinking = thinking, .thinking_budget = r.thinking_budget, .tool_choice = choice ? r.tool_choice : ToolChoice::automatic, .names = {}};
  o.names = r.tool_choice == ToolChoice::named ? std::vector<std::string>{r.tool_name} : r.tool_names;
  return std::make_unique<AnswerGuide>(tokenizer, std::move(o));
}

}  // namespace lily::server
