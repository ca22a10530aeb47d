#include <fmt/format.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory_use.h"
#include "cli/command.h"
#include "cli/load.h"
#include "cli/memory_plan.h"
#include "cli/prompt.h"
#include "server/app.h"

namespace lily::cli {
namespace {

constexpr std::int64_t kGiB = std::int64_t(1) << 30;
constexpr std::int64_t kStoredShare = 4;  // a disk holds so many times what memory does

bool reaches_this_machine_alone(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

/// "3g", "512m", "1000000"; auto: three quarters of what the weights leave, at most 16 GiB.
std::int64_t cache_bytes(const std::string& text, std::int64_t needed) {
  if (text == "auto") {
    const std::int64_t left = usable_memory_bytes() - needed;
    return std::min<std::int64_t>(std::max<std::int64_t>(left, 0) / 4 * 3, 16 * kGiB);
  }
  int shift = 0;
  std::string digits = text;
  if (const auto unit = std::string_view("kmg").find(digits.empty() ? ' ' : char(std::tolower(digits.back()))); unit != std::string_view::npos) {
    shift = 10 * int(unit + 1);
    digits.pop_back();
  }
  try {
    return parse_integer("--cache-bytes", digits, 1, INT64_MAX >> (shift + 1)) << shift;
  } catch (const UsageError&) {
    throw UsageError(fmt::format("--cache-bytes takes auto or a number of bytes, also with k, m or g behind it, not '{}'", text));
  }
}

server::AppOptions app_options(const Settings& s, const Ready& ready) {
  server::AppOptions o;
  o.model = s.model;
  while (o.model.size() > 1 && o.model.back() == '/') o.model.pop_back();
  o.model = o.model.substr(o.model.rfind('/') + 1);
  o.aliases = s.aliases;
  o.created = unix_seconds();
  o.sampling = sampling_fields(s, ready.dir);
  if (!s.think.empty()) o.thinking = s.think == "on";
  if (!s.preserve_thinking.empty()) o.preserve_thinking = s.preserve_thinking == "on";
  o.thinking_budget = s.thinking_budget;
  const TemplateChoice choice = choose_template(ready.dir);
  if (!choice.warning.empty()) log_warning(choice.warning);
  o.prompts = {.style = choice.style, .restore_reasoning = s.restore_reasoning == "on", .volatile_lines = s.volatile_lines};
  const std::int64_t fixed = ready.model->weights.bytes() + ready.engine->backend().scratch_bytes();
  o.scheduler = {.parallel = s.parallel, .queue = s.queue, .cache_bytes = cache_bytes(s.cache_bytes, fixed)};
  if (!s.cache_dir.empty()) {
    const Backend& backend = ready.engine->backend();
    const std::string key = state_key(ready.model->report.files, backend.state_layout(), backend.arithmetic());
    o.scheduler.store = std::make_shared<CacheStore>(s.cache_dir, key, backend.state_layout(), ready.engine->shape().vocab,
                                                     kStoredShare * o.scheduler.cache_bytes);
  }
  o.guard = {.api_key = s.api_key, .allowed_hosts = s.allowed_hosts, .allowed_origins = s.allowed_origins};
  return o;
}

void announce(const Settings& s, const Ready& ready, const server::App& app, const server::AppOptions& o, int port) {
  const int tokens = int(std::min<std::int64_t>(8192, app.window()));
  const MemoryPlan plan = memory_plan(*ready.engine, ready.model->weights, tokens);
  const double conversation = double(plan.kv + plan.snapshots);
  const std::string host = s.host.find(':') == std::string::npos ? s.host : "[" + s.host + "]";
  log_info(fmt::format("memory: weights {:.2f} GB, scratch up to {:.2f} GB, conversations up to {:.2f} GB (about {:.0f} of {} tokens); window {} tokens",
                       double(plan.weights) / 1e9, double(plan.scratch) / 1e9, double(o.scheduler.cache_bytes) / 1e9,
                       std::floor(double(o.scheduler.cache_bytes) / conversation), tokens, app.window()));
  log_info(fmt::format("{} on {}: http://{}:{}{}", o.model, ready.engine->backend().name(), host, port, o.guard.api_key.empty() ? "" : " (with a key)"));
}

/// A name that nothing can equal would be a flag without effect.
void check_names(const Settings& s) {
  for (const std::string& host : s.allowed_hosts)
    if (server::host_name(host).empty()) throw UsageError(fmt::format("--allowed-host takes the name of a host, not '{}'", host));
  for (const std::string& origin : s.allowed_origins)
    if (!server::is_origin(origin))
      throw UsageError(fmt::format("--allowed-origin takes an origin such as https://chat.example, without a path, not '{}'", origin));
}

}  // namespace

void cmd_serve(const Settings& s) {
  if (!reaches_this_machine_alone(s.host) && s.api_key.empty() && !s.insecure)
    throw UsageError(fmt::format("--host {} can be reached from elsewhere: --api-key KEY (or LILY_API_KEY) protects it, --insecure leaves it open", s.host));
  check_names(s);
#if defined(__GLIBC__)
  mallopt(M_ARENA_MAX, 1);  // with one for each thread the process grows for thousands of requests, although its heap does not (docs/BENCHMARKS.md)
#endif
  // Signals are waited for by a thread of their own: no other thread may get them, so they are blocked before any is made.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const Ready ready = load(s, s.max_context, /*snapshots=*/2);
  const Tokenizer tokenizer = load_tokenizer(ready);
  const server::AppOptions options = app_options(s, ready);
  auto app = std::make_unique<server::App>(*ready.engine, tokenizer, ready.model->weights.bytes(), options);
  http::Server server({.host = s.host, .port = s.port, .limits = {}}, [&](const http::RequestHead& head) { return app->gate(head); },
                      [&](std::shared_ptr<http::Exchange> exchange) { app->handle(std::move(exchange)); }, server::App::refuse);
  announce(s, ready, *app, options, server.port());
  std::thread([&, signals] {
    int which = 0;
    sigwait(&signals, &which);
    log_info("ending: running answers are finished first; a second signal ends them");
    app->drain();
    server.stop(std::chrono::seconds(s.drain_seconds));
    sigwait(&signals, &which);
    std::_Exit(128 + which);
  }).detach();
  server.run();
  app.reset();  // before the server, to which its answers are written
}

}  // namespace lily::cli
