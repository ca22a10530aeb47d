// The objects of the OpenAI API, as this server writes them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "server/answer_text.h"

namespace lily::server {

using Json = nlohmann::ordered_json;

/// What all pieces of one answer share.
struct AnswerIdentity {
  std::string id;     // "chatcmpl-…" or "cmpl-…"
  std::string model;
  std::int64_t created = 0;
  bool chat = true;
};

Json usage_json(const Ended& ended, std::int64_t prompt_tokens, std::int64_t completion_tokens, const AnswerText& text);
Json timings_json(const Ended& ended);
/// One entry of logprobs.content.
Json chat_logprob(const Tokenizer& tokenizer, const NextToken& token);
/// The older form's four lists; `offsets`: how many characters of the text come before each token.
Json completion_logprobs(const Tokenizer& tokenizer, const std::vector<NextToken>& tokens, const std::vector<std::int64_t>& offsets);

Json chat_answer(const AnswerIdentity& who, const AnswerText& text, Json logprobs);
Json completion_answer(const AnswerIdentity& who, const std::string& echo, const AnswerText& text, Json logprobs);
/// A piece of a stream: `choice` is what stands in choices[0] beside its index; null: no choices at all.
Json stream_piece(const AnswerIdentity& who, Json choice);
/// {role?, reasoning_content?, content?, tool_calls?}
Json chat_delta(const TextDelta& delta);

/// JSON text in which nothing can be invalid UTF-8.
std::string dump(const Json& json);
std::string sse(const Json& json);

}  // namespace lily::server
