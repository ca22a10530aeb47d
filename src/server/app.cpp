#include "server/app.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <charconv>

#include "base/log.h"
#include "server/answer_listener.h"
#include "server/api_error.h"
#include "server/guide.h"
#include "server/metrics.h"
#include "server/pages.h"
#include "text/json_text.h"

namespace lily::server {
namespace {

[[noreturn]] void refuse_with(int status, std::string message, std::string param, std::string code, std::string type = "invalid_request_error") {
  throw RequestError({.status = status, .message = std::move(message), .type = std::move(type), .param = std::move(param), .code = std::move(code)});
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      out += char(byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

Json body_object(const std::string& text) {
  Json body = parse_json(text);
  if (!body.is_object()) refuse_field("body", "expected a JSON object");
  return body;
}

}  // namespace

struct App::Pool {
  boost::asio::thread_pool threads{2};
};

struct App::Route {
  const char* method;
  const char* path;  // one that ends in / takes what follows
  void (App::*answer)(const Exchange&);
  bool heavy;        // takes a thread of the pool
};

const std::vector<App::Route>& App::routes() {
  static const std::vector<Route> table = {
      {"POST", "/v1/chat/completions", &App::chat, true},
      {"POST", "/v1/completions", &App::completion, true},
      {"GET", "/v1/models", &App::models, false},
      {"GET", "/v1/models/", &App::model, false},
      {"POST", "/tokenize", &App::tokenize, true},
      {"POST", "/detokenize", &App::detokenize, true},
      {"POST", "/apply-template", &App::apply_template, true},
      {"GET", "/health", &App::health, false},
      {"GET", "/status", &App::status, true},
      {"GET", "/metrics", &App::metrics, false},
  };
  return table;
}

App::App(Engine& engine, const Tokenizer& tokenizer, std::int64_t weight_bytes, AppOptions options)
    : engine_(engine),
      tokenizer_(tokenizer),
      weight_bytes_(weight_bytes),
      options_(std::move(options)),
      guard_(options_.guard),
      turns_(options_.turn_bytes),
      prompts_(tokenizer, turns_, options_.prompts),
      scheduler_(std::make_unique<Scheduler>(engine, options_.scheduler)),
      pool_(std::make_unique<Pool>()) {}

App::~App() {
  pool_->threads.join();
  scheduler_.reset();
}

http::Reply App::refuse(int status, const std::string& why) {
  return error_reply({.status = status, .message = why, .type = status >= 500 ? "server_error" : "invalid_request_error", .param = {}, .code = {}});
}

http::Reply App::reply(const http::Exchange& exchange, int status, std::string body, const char* type) const {
  http::Reply r{.status = status, .fields = guard_.cors(exchange.head()), .body = std::move(body)};
  r.fields.emplace_back("Content-Type", type);
  r.fields.emplace_back("X-Content-Type-Options", "nosniff");
  return r;
}

void App::fail(const Exchange& exchange, const ApiError& error) const {
  http::Reply r = error_reply(error);
  for (auto& field : guard_.cors(exchange->head())) r.fields.push_back(field);
  exchange->reply(std::move(r));
}

void App::name_ignored(const std::vector<std::string>& names, http::Reply& reply) {
  // Clients read heads of some kilobytes at the most.
  constexpr std::size_t kMostNamed = 64, kMostBytes = 3000, kMostLogged = 256;
  std::string list;
  std::size_t n = 0;
  const std::lock_guard lock(ignored_mutex_);
  for (; n < std::min(names.size(), kMostNamed) && list.size() < kMostBytes; ++n) {
    const std::string name = shortened(names[n], 80);
    list += (list.empty() ? "" : ", ") + name;
    if (ignored_.size() < kMostLogged && ignored_.insert(name).second)
      log_info(fmt::format("requests have '{}', which has no effect here (said once)", name));
  }
  if (n < names.size()) list += fmt::format(", and {} more", names.size() - n);
  if (!list.empty()) reply.fields.emplace_back("x-lily-ignored", std::move(list));
}

void App::handle(Exchange exchange) {
  const http::RequestHead& head = exchange->head();
  const std::string method = head.method == "HEAD" ? "GET" : head.method;
  if (method == "GET") {
    if (auto page = page_reply(head.path)) return exchange->reply(std::move(*page));
  }
  std::string allowed;
  for (const Route& route : routes()) {
    const std::string_view path = route.path;
    const bool fits = path.ends_with('/') ? head.path.starts_with(path) && head.path.size() > path.size() : head.path == path;
    if (!fits) continue;
    if (route.method == method) return run(route, exchange);
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  http::Reply r = allowed.empty() ? error_reply({.status = 404, .message = "there is no " + head.path.substr(0, 200), .param = {}, .code = "unknown_route"})
                                  : error_reply({.status = 405, .message = head.path + " takes " + allowed, .param = {}, .code = "method_not_allowed"});
  if (!allowed.empty()) r.fields.emplace_back("Allow", allowed);
  exchange->reply(std::move(r));
}

void App::run(const Route& route, const Exchange& exchange) {
  const auto answer = [this, answer = route.answer, exchange] {
    try {
      (this->*answer)(exchange);
    } catch (...) {
      fail(exchange, api_error(std::current_exception()));
    }
  };
  if (!route.heavy) return answer();
  boost::asio::post(pool_->threads, answer);
}

// ---- answers ----

void App::check_model(const std::string& name) const {
  if (name.empty() || name == options_.model) return;
  if (std::find(options_.aliases.begin(), options_.aliases.end(), name) != options_.aliases.end()) return;
  refuse_with(404, fmt::format("the model '{}' is not served here: '{}' is (lily serve --alias gives it more names)", name.substr(0, 200), options_.model), "model", "model_not_found");
}

void App::check_model_of(const Json& body) const {
  const Json& model = member(body, "model");
  if (!model.is_null() && !model.is_string()) refuse_field("model", "expected a string");
  if (model.is_string()) check_model(model.get<std::string>());
}

ApiRequest App::read_chat(const std::string& body) const {
  ApiRequest r = parse_chat_request(body);
  check_model(r.model);
  if (!r.input.enable_thinking) r.input.enable_thinking = options_.thinking;
  if (!r.input.preserve_thinking) r.input.preserve_thinking = options_.preserve_thinking;
  if (!r.thinking_budget) r.thinking_budget = options_.thinking_budget;
  return r;
}

SamplerOptions App::sampler_options(const ApiRequest& r) const {
  SamplerOptions o = r.sampling.or_else(options_.sampling).options();
  o.logit_bias = r.logit_bias;
  for (const auto& [id, bias] : o.logit_bias)
    if (id >= engine_.shape().vocab) refuse_field("logit_bias", fmt::format("{} is outside the vocabulary (0 to {})", id, engine_.shape().vocab - 1));
  try {
    Sampler checked(o);
  } catch (const Error& e) {
    const std::string what = e.what();  // begins with the field's name
    refuse_with(400, what, what.substr(0, what.find(' ')), {});
  }
  return o;
}

void App::chat(const Exchange& exchange) {
  ApiRequest r = read_chat(exchange->body());
  if (!r.input.add_generation_prompt) refuse_field("add_generation_prompt", "false makes sense with /apply-template alone");
  ChatPrompt prompt = prompts_.make(r.input);
  submit(exchange, std::move(r), std::move(prompt), {});
}

void App::completion(const Exchange& exchange) {
  ApiRequest r = parse_completion_request(exchange->body());
  check_model(r.model);
  if (r.echo && r.logprobs) refuse_field("echo", "together with 'logprobs' is not supported: the prompt's are not computed");
  if (!r.max_tokens) r.max_tokens = 16;  // the API's own default for this route
  ChatPrompt prompt;
  prompt.ids = r.prompt_ids.empty() ? tokenizer_.encode(r.prompt, ControlTokens::parse) : r.prompt_ids;
  for (const std::int32_t id : prompt.ids)
    if (id >= engine_.shape().vocab) refuse_field("prompt", fmt::format("{} is outside the vocabulary (0 to {})", id, engine_.shape().vocab - 1));
  const auto total = std::int64_t(prompt.ids.size());
  prompt.snapshot_at = choose_snapshots({}, total, kSnapshotSpacing);
  prompt.snapshot_at.push_back(total);
  std::string echo = !r.echo ? std::string() : r.prompt_ids.empty() ? r.prompt : tokenizer_.decode_text(r.prompt_ids);
  submit(exchange, std::move(r), std::move(prompt), std::move(echo));
}

void App::submit(const Exchange& exchange, ApiRequest r, ChatPrompt prompt, std::string echo) {
  Request request;
  const auto length = std::int64_t(prompt.ids.size());
  if (length >= scheduler_->window())
    // The beginning is what clients look for in order to shorten their history.
    refuse_with(400, fmt::format("This model's maximum context length is {} tokens, prompt and answer together; the prompt has {} tokens", scheduler_->window(), length),
                r.chat ? "messages" : "prompt", "context_length_exceeded");
  request.ids = prompt.ids;
  request.snapshot_at = prompt.snapshot_at;
  request.sampling = sampler_options(r);
  request.max_tokens = r.max_tokens.value_or(0);
  request.end_ids = tokenizer_.end_tokens();
  request.logprobs = r.logprobs;
  request.guide = make_guide(tokenizer_, r, prompt.thinking);
  request.listener = std::make_shared<AnswerListener>(*this, exchange, std::move(r), std::move(prompt), std::move(echo));
  if (draining_) refuse_with(503, "the server is ending", {}, "draining", "server_error");
  const auto number = scheduler_->submit(std::move(request));
  if (!number) refuse_with(429, "the queue is full", {}, "queue_full", "rate_limit_error");
  exchange->on_gone([scheduler = scheduler_.get(), n = *number] { scheduler->cancel(n); });
}

// ---- the rest ----

void App::models(const Exchange& exchange) {
  exchange->reply(reply(*exchange, 200, dump({{"object", "list"}, {"data", Json::array({model_json()})}})));
}

Json App::model_json() const {
  return {{"id", options_.model},
          {"object", "model"},
          {"created", options_.created},
          {"owned_by", "lily"},
          {"max_model_len", scheduler_->window()},
          {"context_length", scheduler_->window()},
          {"aliases", options_.aliases}};
}

void App::model(const Exchange& exchange) {
  // Clients write the '/' of a name as %2F.
  check_model(percent_decoded(exchange->head().path.substr(std::string_view("/v1/models/").size())));
  exchange->reply(reply(*exchange, 200, dump(model_json())));
}

void App::tokenize(const Exchange& exchange) {
  const Json body = body_object(exchange->body());
  check_model_of(body);
  const bool content = !member(body, "content").is_null() || (body.contains("content") && member(body, "prompt").is_null());
  const char* key = content ? "content" : "prompt";
  const Json& text = member(body, key);
  if (!text.is_string()) refuse_field(key, "expected a text");
  const Json& special = member(body, "special");
  if (!special.is_null() && !special.is_boolean()) refuse_field("special", "expected true or false");
  const auto ids = tokenizer_.encode(text.get_ref<const std::string&>(), special == true ? ControlTokens::parse : ControlTokens::as_text);
  http::Reply r = reply(*exchange, 200, dump({{"tokens", ids}, {"count", ids.size()}, {"max_model_len", scheduler_->window()}}));
  name_ignored(members_beyond(body, {"model", key, "special"}), r);
  exchange->reply(std::move(r));
}

void App::detokenize(const Exchange& exchange) {
  const Json body = body_object(exchange->body());
  check_model_of(body);
  if (!body.contains("tokens") || !body["tokens"].is_array()) refuse_field("tokens", "expected a list of token ids");
  std::vector<std::int32_t> ids;
  for (const Json& id : body["tokens"]) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= engine_.shape().vocab)
      refuse_field("tokens", fmt::format("expected token ids from 0 to {}", engine_.shape().vocab - 1));
    ids.push_back(id.get<std::int32_t>());
  }
  http::Reply r = reply(*exchange, 200, dump({{"content", tokenizer_.decode_text(ids)}}));
  name_ignored(members_beyond(body, {"model", "tokens"}), r);
  exchange->reply(std::move(r));
}

void App::apply_template(const Exchange& exchange) {
  ApiRequest r = read_chat(exchange->body());
  // The text of the ids that would be read, not the template's: remembered turns and stripped lines are in it as the model sees them.
  const ChatPrompt prompt = prompts_.make(r.input);
  http::Reply answer = reply(*exchange, 200, dump({{"prompt", tokenizer_.decode_text(prompt.ids)}, {"tokens", prompt.ids}, {"count", prompt.ids.size()}}));
  name_ignored(r.ignored, answer);
  exchange->reply(std::move(answer));
}

void App::health(const Exchange& exchange) {
  const SchedulerStatus s = scheduler_->status();
  const bool well = s.alive && !draining_;
  exchange->reply(reply(*exchange, well ? 200 : 503, dump({{"status", well ? "ok" : draining_ ? "draining" : "the worker is dead"}})));
}

void App::status(const Exchange& exchange) {
  const SchedulerStatus s = scheduler_->status();
  const CacheUse use = scheduler_->cache().use();
  Json miss = nullptr;
  if (s.last_prompt > 0) {
    miss = {{"prompt_tokens", s.last_prompt}, {"cached_tokens", s.last_hit}, {"parted_at", s.last_parting.at}};
    miss["cached_text"] = tokenizer_.decode_text(s.last_parting.cached);
    miss["prompt_text"] = tokenizer_.decode_text(s.last_ids);
  }
  exchange->reply(reply(
      *exchange, 200,
      dump({{"model", options_.model},
            {"backend", engine_.backend().name()},
            {"max_model_len", scheduler_->window()},
            {"slots", {{"total", options_.scheduler.parallel}, {"running", s.running}, {"reading", s.reading}}},
            {"queue", {{"waiting", s.waiting}, {"limit", options_.scheduler.queue}}},
            {"bytes",
             {{"weights", weight_bytes_},
              {"kv", use.kv_bytes},
              {"snapshots", use.snapshot_bytes},
              {"running", s.running_bytes},
              {"turns", turns_.bytes()},
              {"scratch", engine_.backend().scratch_bytes()},
              {"budget", options_.scheduler.cache_bytes}}},
            {"cache", {{"snapshots", use.snapshots}, {"evicted", use.evicted}}},
            {"last_request", miss}})));
}

void App::metrics(const Exchange& exchange) {
  exchange->reply(reply(*exchange, 200, metrics_text(scheduler_->status(), scheduler_->cache().use(), silent_answers_), "text/plain; version=0.0.4"));
}

}  // namespace lily::server
