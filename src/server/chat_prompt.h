// From messages to the ids that a session reads, and to the places where the next request is likely to part from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/turns.h"
#include "text/chat_template.h"
#include "text/regex_splitter.h"
#include "text/tokenizer.h"

namespace lily::server {

struct ChatPrompt {
  std::vector<std::int32_t> ids;
  bool thinking = false;                  // it ends inside an open think block
  std::vector<std::int64_t> snapshot_at;  // ascending
};

/// Tokens between two snapshots of a long prompt, at least; each costs a copy of the recurrent state and cuts a pass in two.
inline constexpr std::int64_t kSnapshotSpacing = 1024;

/// Where to keep snapshots: after the system and tools block, before the last message, before the answer, and on the way at messages'
/// ends (or anywhere, inside a long message) at least `spacing` apart.
std::vector<std::int64_t> choose_snapshots(const std::vector<PromptBoundary>& boundaries, std::int64_t total, std::int64_t spacing);

class PromptMaker {
 public:
  struct Options {
    TemplateStyle style = TemplateStyle::qwen3_6;
    bool restore_reasoning = true;  // give a client that dropped it inside a tool loop the remembered reasoning back
    std::vector<std::string> volatile_lines;  // patterns: lines of the system message that match are left out
  };
  /// Error(invalid_argument) for a pattern that is none.
  PromptMaker(const Tokenizer& tokenizer, TurnMemory& turns, Options options);
  /// `input` may lose volatile lines and regain reasoning.
  ChatPrompt make(ChatInput& input) const;

 private:
  void strip_volatile(ChatInput& input) const;

  const Tokenizer& tokenizer_;
  TurnMemory& turns_;
  Options options_;
  std::vector<RegexSplitter> volatile_;
  std::int32_t turn_end_;  // <|im_end|>
};

}  // namespace lily::server
