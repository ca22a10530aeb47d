// What a model writes, taken apart: reasoning first, then answer text and tool calls.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/reasoning.h"
#include "text/tool_calls.h"

namespace lily {

/// Joins ReasoningParser and ToolCallParser. Tool syntax inside the reasoning is reasoning.
class OutputParser {
 public:
  struct Delta {
    std::string reasoning;
    std::vector<ToolEvent> events;
  };

  /// `starts_in_thinking`: RenderedPrompt::thinking.
  OutputParser(bool starts_in_thinking, ToolSchemas schemas, ToolCallParser::Options options)
      : reasoning_(starts_in_thinking), calls_(std::move(schemas), options) {}

  Delta push(std::string_view text);
  Delta finish(TextEnd end);

  bool thinking() const { return reasoning_.thinking(); }
  int completed_calls() const { return calls_.completed_calls(); }
  bool done() const { return calls_.done(); }

 private:
  ReasoningParser reasoning_;
  ToolCallParser calls_;
};

}  // namespace lily
