#include "server/guide.h"

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
  if (options_.thinking && options_.thinking_budget == 0) write("</think>\n\n");
  if (!options_.thinking) open_call(false);
}

void AnswerGuide::write(const std::string& text) {
  for (const std::int32_t id : tokenizer_.encode(text, ControlTokens::parse)) forced_.push_back(id);
}

void AnswerGuide::open_call(bool after_thinking) {
  if (options_.tool_choice != ToolChoice::required && options_.tool_choice != ToolChoice::named) return;
  const std::string opening = std::string(after_thinking && forced_.empty() ? "\n\n" : "") + "<tool_call>\n<function=";
  if (options_.names.size() == 1) return write(opening + options_.names[0] + ">\n");
  write(opening);
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
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const std::string_view bytes = std::int32_t(id) < tokenizer_.vocab_size() ? tokenizer_.token_bytes(std::int32_t(id)) : std::string_view();
    bool fits = false;
    for (const std::string& name : options_.names) {
      const std::string whole = name + ">\n";
      fits = fits || (!bytes.empty() && whole.size() >= name_.size() + bytes.size() && whole.starts_with(name_) &&
                      std::string_view(whole).substr(name_.size()).starts_with(bytes));
    }
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
  if (!written && options_.thinking_budget && spent_ >= *options_.thinking_budget) write(kEnough);
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
