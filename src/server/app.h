// The server without its sockets: what each route does.
//
// A request comes in on the HTTP thread, is read, rendered and tokenised on a thread of a small pool (a prompt may have a million
// characters), and handed to the scheduler, whose worker calls back with each token. An answer is written by whichever of them has
// something to say.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/sampling_defaults.h"
#include "engine/scheduler.h"
#include "server/api_error.h"
#include "server/chat_prompt.h"
#include "server/guard.h"
#include "server/http.h"
#include "server/request.h"

namespace lily::server {

struct AppOptions {
  std::string model;                 // the id it is served under
  std::vector<std::string> aliases;
  std::int64_t created = 0;          // seconds since 1970, for /v1/models
  SamplingFields sampling;           // flags, then generation_config.json
  std::optional<bool> thinking, preserve_thinking;
  std::optional<std::int64_t> thinking_budget;
  std::chrono::milliseconds keep_alive{5000};
  std::int64_t turn_bytes = 64 << 20;
  PromptMaker::Options prompts;
  SchedulerOptions scheduler;
  GuardOptions guard;
};

class App {
 public:
  /// Engine and tokenizer outlive it.
  App(Engine& engine, const Tokenizer& tokenizer, std::int64_t weight_bytes, AppOptions options);
  /// Ends every request.
  ~App();

  std::optional<http::Reply> gate(const http::RequestHead& head) const { return guard_.check(head); }
  void handle(std::shared_ptr<http::Exchange> exchange);
  static http::Reply refuse(int status, const std::string& why);
  /// From now on /health says that nothing new should be sent here.
  void drain() { draining_ = true; }
  std::int64_t window() const { return scheduler_->window(); }

 private:
  friend class AnswerListener;
  using Exchange = std::shared_ptr<http::Exchange>;
  struct Route;
  static const std::vector<Route>& routes();

  void run(const Route& route, const Exchange& exchange);
  http::Reply reply(const http::Exchange& exchange, int status, std::string body, const char* type = "application/json") const;
  void fail(const Exchange& exchange, const ApiError& error) const;
  /// Fields without effect stand in a header of the answer and, each once, in the log.
  void name_ignored(const std::vector<std::string>& names, http::Reply& reply);

  void chat(const Exchange& exchange);
  void completion(const Exchange& exchange);
  void submit(const Exchange& exchange, ApiRequest request, ChatPrompt prompt, std::string echo);
  void models(const Exchange& exchange);
  void model(const Exchange& exchange);
  void tokenize(const Exchange& exchange);
  void detokenize(const Exchange& exchange);
  void apply_template(const Exchange& exchange);
  void health(const Exchange& exchange);
  void status(const Exchange& exchange);
  void metrics(const Exchange& exchange);

  nlohmann::ordered_json model_json() const;
  ApiRequest read_chat(const std::string& body) const;
  void check_model(const std::string& name) const;
  void check_model_of(const nlohmann::ordered_json& body) const;
  SamplerOptions sampler_options(const ApiRequest& request) const;

  Engine& engine_;
  const Tokenizer& tokenizer_;
  std::int64_t weight_bytes_;
  AppOptions options_;
  Guard guard_;
  TurnMemory turns_;
  PromptMaker prompts_;
  std::atomic<bool> draining_ = false;
  std::atomic<std::int64_t> silent_answers_ = 0;
  std::mutex ignored_mutex_;
  std::set<std::string> ignored_;  // what the log has named
  std::unique_ptr<Scheduler> scheduler_;
  struct Pool;
  std::unique_ptr<Pool> pool_;  // ends before the scheduler does
};

}  // namespace lily::server
