// One answer on its way to the user: generated, split into thinking and answer, shown as it comes.
#pragma once

#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "cli/prompt.h"
#include "engine/generate.h"
#include "text/tool_schema.h"

namespace lily::cli {

struct ToolCall {
  std::string id, name;
  std::string arguments;  // JSON, unless the answer was cut inside the call
};

struct Answer {
  std::string reasoning, content;
  std::vector<ToolCall> calls;  // those that are complete
  Generated generated;
  const char* finish_reason() const;  // "tool_calls" (if and only if there are any), "stop", "length" or "interrupted"
};

struct AnswerOptions {
  std::int64_t max_tokens = 0;         // 0: to the end of the window
  bool show = true;                    // false: nothing is written while it comes
  bool raw = false;                    // thinking is no different from the rest
  const ToolSchemas* tools = nullptr;  // null: a tool call is text like any other
};

/// Answers `prompt`. The answer goes to standard output, the thinking to standard error (dimmed on a terminal), both as
/// they come. `interrupt` stops it, while the prompt is read (Error(cancelled)) as well as later (what is there is
/// kept).
Answer answer(Session& session, const Prompt& prompt, Sampler& sampler, const Tokenizer& tokenizer,
              const AnswerOptions& options, const Interrupt& interrupt);

/// Tokens and rates of `generated` for --stats and /stats: one line without its end.
std::string stats_line(const Generated& generated);
/// Against what the machine can do: shares of the read bandwidth and of the int8 peak, measured now (half a second). Empty for a back end
/// that has no limits worth measuring.
std::string limits_line(const Generated& g, Engine& engine, const Weights& weights);

}  // namespace lily::cli
