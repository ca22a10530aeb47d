// A body of /v1/chat/completions or /v1/completions, checked and brought into one shape.
//
// Every field is honoured, or refused with an error that names it, or listed in `ignored`. null is as good as absent.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/sampling_defaults.h"
#include "text/messages.h"
#include "text/tool_schema.h"

namespace lily::server {

enum class ToolChoice { automatic, none, required, named };

struct ApiRequest {
  bool chat = true;
  nlohmann::ordered_json body;

  // chat
  ChatInput input;
  std::vector<std::string> tool_names;  // of the offered tools
  ToolChoice tool_choice = ToolChoice::automatic;
  std::string tool_name;                // with `named`
  bool parallel_tool_calls = true;
  std::optional<std::int64_t> thinking_budget;  // tokens

  // completions
  std::string prompt;
  std::vector<std::int32_t> prompt_ids;  // where the prompt came as ids
  bool echo = false;

  std::string model;
  bool stream = false, include_usage = false;
  std::optional<std::int64_t> max_tokens;
  SamplingFields sampling;
  std::vector<std::pair<std::int32_t, float>> logit_bias;
  std::vector<std::string> stop;
  std::optional<int> logprobs;  // how many alternatives to each token
  std::vector<std::string> ignored;
};

/// Error that names the field at fault.
ApiRequest parse_chat_request(std::string_view body);
ApiRequest parse_completion_request(std::string_view body);

}  // namespace lily::server
