#include "server/chat_prompt.h"

#include <algorithm>

#include "base/error.h"
#include "text/utf8.h"

namespace lily::server {
namespace {

bool begins(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& beginning) {
  return beginning.size() <= ids.size() && std::equal(beginning.begin(), beginning.end(), ids.begin());
}

/// Puts the ids that were generated in the place of their rendering. False: the prompt is not a continuation of that turn's.
bool splice(std::vector<std::int32_t>& ids, const Turn& turn, std::int32_t turn_end, std::vector<PromptBoundary>& boundaries) {
  if (!begins(ids, turn.prompt)) return false;
  const auto from = ids.begin() + std::ptrdiff_t(turn.prompt.size());
  const auto to = std::find(from, ids.end(), turn_end);  // content holds no control token, so this is the end of that turn
  if (to == ids.end()) return false;
  const auto at = std::size_t(to - ids.begin());
  const std::ptrdiff_t longer = std::ptrdiff_t(turn.generated.size()) - (to - from);
  std::vector<std::int32_t> spliced(ids.begin(), from);
  spliced.insert(spliced.end(), turn.generated.begin(), turn.generated.end());
  spliced.insert(spliced.end(), to, ids.end());
  ids = std::move(spliced);
  for (PromptBoundary& b : boundaries)
    if (b.n_ids >= at) b.n_ids = std::size_t(std::ptrdiff_t(b.n_ids) + longer);
  return true;
}

}  // namespace

std::vector<std::int64_t> choose_snapshots(const std::vector<PromptBoundary>& boundaries, std::int64_t total, std::int64_t spacing) {
  std::vector<std::int64_t> chosen;
  std::int64_t before_last_message = -1;
  for (const PromptBoundary& b : boundaries)
    if (b.kind == Boundary::message_end) before_last_message = std::int64_t(b.n_ids);
  std::int64_t last = 0;
  const auto choose = [&](std::int64_t at) {
    if (at > last) chosen.push_back(last = at);
  };
  for (const PromptBoundary& b : boundaries) {
    const auto at = std::int64_t(b.n_ids);
    while (at - last >= 2 * spacing) choose(last + spacing);
    if (b.kind != Boundary::message_end || at == before_last_message || at - last >= spacing) choose(at);
  }
  while (total - last >= 2 * spacing) choose(last + spacing);
  if (chosen.empty()) chosen.push_back(total);
  return chosen;
}

PromptMaker::PromptMaker(const Tokenizer& tokenizer, TurnMemory& turns, Options options)
    : tokenizer_(tokenizer), turns_(turns), options_(std::move(options)), turn_end_(tokenizer.id_of("<|im_end|>").value_or(-1)) {
  // A match of the splitter that begins at the second character: the line begins with one.
  for (const std::string& pattern : options_.volatile_lines) {
    const std::string where = "--strip-volatile-line '" + pattern + "'";
    RegexSplitter(pattern, where);  // its errors are about what was said
    volatile_.emplace_back("\x02(?:" + pattern + ")", where);
  }
}

void PromptMaker::strip_volatile(ChatInput& input) const {
  if (volatile_.empty() || input.messages.empty() || input.messages[0].role != ChatRole::system) return;
  std::string kept;
  std::string_view rest = input.messages[0].content;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string line(rest.substr(0, end));
    rest.remove_prefix(end);
    const std::string subject = "\x01\x02" + line;
    const bool drop = std::any_of(volatile_.begin(), volatile_.end(), [&](const RegexSplitter& pattern) {
      std::vector<std::string_view> pieces;
      pattern.split(subject, pieces);
      return pieces.size() > 1;
    });
    if (!drop) kept += line;
  }
  input.messages[0].content = kept;
}

ChatPrompt PromptMaker::make(ChatInput& input) const {
  strip_volatile(input);
  const std::vector<std::string> keys = turn_keys(input);
  const std::size_t query = last_query(input.messages);
  std::vector<std::shared_ptr<const Turn>> turns;
  for (std::size_t i = 0; i < input.messages.size(); ++i) {
    Message& m = input.messages[i];
    if (m.role != ChatRole::assistant) continue;
    auto turn = turns_.find(keys[i]);
    if (!turn) continue;
    const bool dropped = assistant_parts(m).reasoning.empty();
    if (dropped && i > query && options_.restore_reasoning && !turn->reasoning.empty()) m.reasoning = turn->reasoning;
    if (assistant_parts(m).reasoning == python_strip(turn->reasoning)) turns.push_back(std::move(turn));
  }
  const RenderedPrompt rendered = render_chat(input, options_.style);
  ChatPrompt prompt;
  std::vector<PromptBoundary> boundaries;
  prompt.ids = tokenizer_.encode(rendered.segments, &boundaries);
  prompt.thinking = rendered.thinking;
  for (const auto& turn : turns) splice(prompt.ids, *turn, turn_end_, boundaries);
  prompt.snapshot_at = choose_snapshots(boundaries, std::int64_t(prompt.ids.size()), kSnapshotSpacing);
  return prompt;
}

}  // namespace lily::server
