#include "planted.h"

#include <cstdlib>

#include "client.h"
#include "server/app.h"

namespace lily::fuzz {
namespace {

volatile int sink;

void read_after_free(const std::string& text) {
  auto* copy = new std::string(text);
  const char* volatile at = copy->data();
  delete copy;
  sink = at[0];
}

void forget(const std::string& text) {
  [[maybe_unused]] std::string* volatile copy = new std::string(text);
  copy = nullptr;
}

void overflow(std::size_t n) {
  volatile int large = 2147483647;
  sink = large + int(n);
}

http::Reply json(int status, std::string body) {
  return {.status = status, .fields = {{"Content-Type", "application/json"}}, .body = std::move(body)};
}

}  // namespace

std::string Planted::name() {
  const char* text = std::getenv("LILY_FUZZ_PLANTED");
  const std::string name = text ? text : "";
  for (const char* known : {"", "memory", "undefined", "leak", "reply", "silence", "probe", "health", "framing"})
    if (name == known) return name;
  fault("LILY_FUZZ_PLANTED names no fault: " + name);
}

bool Planted::handle(const std::shared_ptr<http::Exchange>& exchange) {
  if (name_.empty()) return false;
  const std::string& path = exchange->head().path;
  if (changed_ && name_ == "health" && path == "/health")
    return exchange->reply(json(200, R"({"status":"draining"})")), true;
  if (changed_ && name_ == "probe" && path == "/v1/completions")
    return exchange->reply(json(200, R"({"choices":[]})")), true;
  if (path.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789/-._") == std::string::npos) return false;
  if (name_ == "memory") read_after_free(path + std::string(100, 'x'));
  if (name_ == "undefined") overflow(path.size());
  if (name_ == "leak") forget(path + std::string(100, 'x'));
  if (name_ == "probe" || name_ == "health") changed_ = true;
  if (name_ == "silence") held_.push_back(exchange);
  if (name_ == "reply") exchange->reply(json(200, R"({"cut": )"));
  return name_ == "silence" || name_ == "reply";
}

http::Reply Planted::refuse(int status, const std::string& why) const {
  if (name_ == "framing" && status == 400) return json(200, "{}");
  return server::App::refuse(status, why);
}

}  // namespace lily::fuzz
