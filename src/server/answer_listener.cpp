#include "server/answer_listener.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/unique_id.h"
#include "server/api_error.h"
#include "text/utf8.h"

namespace lily::server {
namespace {

AnswerTextOptions text_options(const ApiRequest& r, const ChatPrompt& prompt) {
  AnswerTextOptions o{.raw = !r.chat, .thinking = prompt.thinking, .tools = {}, .calls = false, .parallel = r.parallel_tool_calls, .stop = r.stop};
  if (r.chat && !r.tool_names.empty() && r.tool_choice != ToolChoice::none) {
    o.tools = ToolSchemas(r.body.at("tools"));
    o.calls = true;
  }
  return o;
}

}  // namespace

AnswerListener::AnswerListener(App& app, std::shared_ptr<http::Exchange> exchange, ApiRequest request, ChatPrompt prompt, std::string echo)
    : app_(app),
      exchange_(std::move(exchange)),
      request_(std::move(request)),
      prompt_(std::move(prompt)),
      echo_(std::move(echo)),
      text_(app.tokenizer_, text_options(request_, prompt_)),
      counted_(app.tokenizer_),
      text_offset_(std::int64_t(utf8_length(echo_))) {
  who_ = {.id = unique_id(request_.chat ? "chatcmpl-" : "cmpl-"),
          .model = app.options_.model,
          .created = unix_seconds(),
          .chat = request_.chat};
}

http::Reply AnswerListener::reply(std::string body, const char* type) const {
  http::Reply r = app_.reply(*exchange_, 200, std::move(body), type);
  app_.name_ignored(request_.ignored, r);
  return r;
}

void AnswerListener::accepted() {
  if (!request_.stream) return;
  http::Fields fields = reply({}, "text/event-stream").fields;
  fields.emplace_back("Cache-Control", "no-cache");
  fields.emplace_back("X-Accel-Buffering", "no");  // or a proxy would gather the pieces
  exchange_->begin(200, std::move(fields));
  exchange_->keep_alive(app_.options_.keep_alive, ": keep-alive\n\n");
  if (request_.chat) {
    exchange_->write(sse(stream_piece(who_, {{"delta", {{"role", "assistant"}, {"content", ""}}}})));
  } else if (!echo_.empty()) {
    exchange_->write(sse(stream_piece(who_, {{"text", echo_}, {"logprobs", nullptr}})));
  }
}

Json AnswerListener::logprobs() const {
  if (!request_.logprobs) return nullptr;
  if (!request_.chat) return completion_logprobs(app_.tokenizer_, logprobs_, offsets_);
  Json content = Json::array();
  for (const NextToken& t : logprobs_) content.push_back(chat_logprob(app_.tokenizer_, t));
  return {{"content", std::move(content)}};
}

void AnswerListener::write(const TextDelta& delta) {
  if (delta.empty() && logprobs_.empty()) return;
  Json choice;
  if (request_.chat) {
    choice = {{"delta", chat_delta(delta)}};
  } else {
    choice = {{"text", delta.content}};
  }
  choice["logprobs"] = logprobs();
  logprobs_.clear();
  offsets_.clear();
  exchange_->write(sse(stream_piece(who_, std::move(choice))));
}

bool AnswerListener::token(const NextToken& token) {
  ids_.push_back(token.id);
  const TextDelta delta = text_.push(token.id);
  if (request_.logprobs) {
    logprobs_.push_back(token);
    offsets_.push_back(text_offset_);
    text_offset_ += std::int64_t(utf8_length(counted_.push(token.id)));
  }
  if (request_.stream) write(delta);
  return !text_.complete();
}

std::int64_t AnswerListener::completion_tokens(const Ended& ended) const {
  return std::int64_t(ids_.size()) + (ended.finish == Finish::end_token);
}

/// So that the next request's rendering of this answer becomes these ids again.
void AnswerListener::remember() {
  if (!request_.chat || ids_.empty()) return;
  const Json answer = chat_answer(who_, text_, nullptr);
  const ChatInput said = parse_chat(Json{{"messages", Json::array({answer["choices"][0]["message"]})}});
  app_.turns_.remember(turn_key(request_.input, said.messages[0]), {.prompt = prompt_.ids, .generated = ids_, .reasoning = text_.reasoning()});
}

void AnswerListener::finish_stream(const Ended& ended) {
  Json last = {{"finish_reason", text_.finish_reason()}};
  if (request_.chat) {
    last["delta"] = Json::object();
  } else {
    last["text"] = "";
  }
  last["logprobs"] = nullptr;
  exchange_->write(sse(stream_piece(who_, std::move(last))));
  if (request_.include_usage) {
    Json piece = stream_piece(who_, nullptr);
    piece["usage"] = usage_json(ended, std::int64_t(prompt_.ids.size()), completion_tokens(ended), text_);
    piece["timings"] = timings_json(ended);
    exchange_->write(sse(piece));
  }
  exchange_->write("data: [DONE]\n\n");
  exchange_->finish();
}

/// A stream has its head behind it: the error is its last event.
void AnswerListener::fail(const ApiError& error) {
  if (!request_.stream) return app_.fail(exchange_, error);
  exchange_->write("data: " + error_json(error) + "\n\ndata: [DONE]\n\n");
  exchange_->finish();
}

void AnswerListener::ended(const Ended& ended) {
  try {
    ApiError error;
    if (ended.error) error = api_error(ended.error);
    if (!ended.error && ended.finish == Finish::stopped && !text_.complete())
      error = {.status = 503, .message = "the answer was stopped: the server is ending, or the client has gone", .type = "server_error", .param = {}, .code = "stopped"};
    const bool failed = ended.error || (ended.finish == Finish::stopped && !text_.complete());
    const TextDelta rest = text_.finish(ended.finish);
    log_debug(fmt::format("{}: {} prompt tokens ({} cached), {} generated, {:.1f} tokens/s{}", who_.id, prompt_.ids.size(), ended.prompt.reused,
                          completion_tokens(ended), ended.decode_seconds > 0 ? double(ended.decode_steps) / ended.decode_seconds : 0,
                          failed ? "; " + error.message : text_.silent() ? "; nothing but thinking" : ""));
    if (text_.silent()) ++app_.silent_answers_;
    if (failed && request_.stream) write(rest);
    if (failed) return fail(error);
    if (text_.whole()) remember();
    if (request_.stream) {
      write(rest);
      return finish_stream(ended);
    }
    Json answer = request_.chat ? chat_answer(who_, text_, logprobs()) : completion_answer(who_, echo_, text_, logprobs());
    answer["usage"] = usage_json(ended, std::int64_t(prompt_.ids.size()), completion_tokens(ended), text_);
    answer["timings"] = timings_json(ended);
    exchange_->reply(reply(dump(answer), "application/json"));
  } catch (...) {  // nothing may reach the worker
    fail(api_error(std::current_exception()));
  }
}

}  // namespace lily::server
