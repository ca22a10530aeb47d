#include "server/response.h"

#include "text/utf8.h"

namespace lily::server {
namespace {

Json base(const AnswerIdentity& who, const char* object) {
  return {{"id", who.id}, {"object", object}, {"created", who.created}, {"model", who.model}};
}

std::string text_of(const Tokenizer& tokenizer, std::int32_t id) {
  std::string out;
  append_utf8_lossy(out, tokenizer.token_bytes(id));
  return out;
}

Json bytes_of(const Tokenizer& tokenizer, std::int32_t id) {
  Json bytes = Json::array();
  for (const char c : tokenizer.token_bytes(id)) bytes.push_back(int(static_cast<unsigned char>(c)));
  return bytes;
}

Json one_logprob(const Tokenizer& tokenizer, std::int32_t id, float logprob) {
  return {{"token", text_of(tokenizer, id)}, {"logprob", logprob}, {"bytes", bytes_of(tokenizer, id)}};
}

Json call_json(const Call& c) {
  return {{"id", c.id}, {"type", "function"}, {"function", {{"name", c.name}, {"arguments", c.arguments}}}};
}

double rate(std::int64_t tokens, double seconds) { return seconds > 0 ? double(tokens) / seconds : 0; }

}  // namespace

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }
std::string sse(const Json& json) { return "data: " + dump(json) + "\n\n"; }

Json usage_json(const Ended& ended, std::int64_t prompt_tokens, std::int64_t completion_tokens, const AnswerText& text) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", ended.prompt.reused}}},
          {"completion_tokens_details", {{"reasoning_tokens", text.reasoning_tokens()}}}};
}

Json timings_json(const Ended& e) {
  return {{"queue_s", e.queue_seconds},
          {"prefill_tokens", e.prompt.computed},
          {"prefill_s", e.prefill_seconds},
          {"prefill_tok_s", rate(e.prompt.computed, e.prefill_seconds)},
          {"decode_tokens", e.decode_steps},
          {"decode_s", e.decode_seconds},
          {"decode_tok_s", rate(e.decode_steps, e.decode_seconds)}};
}

Json chat_logprob(const Tokenizer& tokenizer, const NextToken& token) {
  Json entry = one_logprob(tokenizer, token.id, token.logprob);
  entry["top_logprobs"] = Json::array();
  for (const TokenLogprob& t : token.top) entry["top_logprobs"].push_back(one_logprob(tokenizer, t.id, t.logprob));
  return entry;
}

Json completion_logprobs(const Tokenizer& tokenizer, const std::vector<NextToken>& tokens, const std::vector<std::int64_t>& offsets) {
  Json lists = {{"tokens", Json::array()}, {"token_logprobs", Json::array()}, {"top_logprobs", Json::array()}, {"text_offset", offsets}};
  for (const NextToken& t : tokens) {
    lists["tokens"].push_back(text_of(tokenizer, t.id));
    lists["token_logprobs"].push_back(t.logprob);
    Json top = Json::object();
    for (const TokenLogprob& other : t.top) top[text_of(tokenizer, other.id)] = other.logprob;
    lists["top_logprobs"].push_back(std::move(top));
  }
  return lists;
}

Json chat_answer(const AnswerIdentity& who, const AnswerText& text, Json logprobs) {
  Json message = {{"role", "assistant"}, {"content", text.content()}};
  if (text.content().empty() && !text.calls().empty()) message["content"] = nullptr;
  if (!text.reasoning().empty()) message["reasoning_content"] = text.reasoning();
  if (!text.calls().empty()) {
    message["tool_calls"] = Json::array();
    for (const Call& c : text.calls()) message["tool_calls"].push_back(call_json(c));
  }
  Json answer = base(who, "chat.completion");
  answer["choices"] = {{{"index", 0}, {"message", std::move(message)}, {"logprobs", std::move(logprobs)}, {"finish_reason", text.finish_reason()}}};
  return answer;
}

Json completion_answer(const AnswerIdentity& who, const std::string& echo, const AnswerText& text, Json logprobs) {
  Json answer = base(who, "text_completion");
  answer["choices"] = {{{"index", 0}, {"text", echo + text.content()}, {"logprobs", std::move(logprobs)}, {"finish_reason", text.finish_reason()}}};
  return answer;
}

Json stream_piece(const AnswerIdentity& who, Json choice) {
  Json piece = base(who, who.chat ? "chat.completion.chunk" : "text_completion");
  piece["choices"] = Json::array();
  if (!choice.is_null()) {
    Json whole = {{"index", 0}};
    whole.update(choice);
    if (!whole.contains("finish_reason")) whole["finish_reason"] = nullptr;
    piece["choices"].push_back(std::move(whole));
  }
  return piece;
}

Json chat_delta(const TextDelta& delta) {
  Json out = Json::object();
  if (!delta.reasoning.empty()) out["reasoning_content"] = delta.reasoning;
  if (!delta.content.empty()) out["content"] = delta.content;
  for (const ToolEvent& e : delta.calls) {
    if (e.kind == ToolEvent::Kind::call_begin) {
      out["tool_calls"].push_back({{"index", e.index}, {"id", e.id}, {"type", "function"}, {"function", {{"name", e.text}, {"arguments", ""}}}});
    } else if (e.kind == ToolEvent::Kind::arguments && !e.text.empty()) {
      out["tool_calls"].push_back({{"index", e.index}, {"function", {{"arguments", e.text}}}});
    }
  }
  return out;
}

}  // namespace lily::server
