#include "server/api_error.h"

#include <nlohmann/json.hpp>

#include "base/log.h"

namespace lily::server {
namespace {

/// "messages[3].content: expected …" → "messages[3].content". Empty when the message begins otherwise.
std::string field_of(const std::string& message) {
  const auto colon = message.find(": ");
  if (colon == std::string::npos || colon == 0 || colon > 128) return {};
  const std::string field = message.substr(0, colon);
  for (const char c : field)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '$' || c == '.' || c == '[' || c == ']')) return {};
  return field;
}

}  // namespace

void refuse_field(const std::string& param, const std::string& what) {
  throw RequestError({.status = 400, .message = param + ": " + what, .param = param, .code = {}});
}

ApiError api_error(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const RequestError& e) {
    return e.api;
  } catch (const Error& e) {
    const std::string what = e.what();
    switch (e.code()) {
      case ErrorCode::invalid_argument: return {.status = 400, .message = what, .param = field_of(what), .code = {}};
      case ErrorCode::unsupported: return {.status = 400, .message = what, .param = field_of(what), .code = "unsupported"};
      case ErrorCode::out_of_memory: return {.status = 503, .message = what, .type = "server_error", .param = {}, .code = "out_of_memory"};
      case ErrorCode::numerical: return {.status = 500, .message = what, .type = "server_error", .param = {}, .code = "numerical"};
      default: log_error(what);
    }
  } catch (const std::exception& e) {
    log_error(std::string("a request failed: ") + e.what());
  } catch (...) {
    log_error("a request failed");
  }
  return {.status = 500, .message = "the server failed on this request; its log says why", .type = "server_error", .param = {}, .code = {}};
}

std::string error_json(const ApiError& e) {
  using Json = nlohmann::ordered_json;
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  const Json body = {{"error", {{"message", e.message}, {"type", e.type}, {"param", or_null(e.param)}, {"code", or_null(e.code)}}}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

http::Reply error_reply(const ApiError& e) {
  http::Reply r{.status = e.status, .fields = {{"Content-Type", "application/json"}}, .body = error_json(e)};
  if (e.status == 429 || e.status == 503) r.fields.emplace_back("Retry-After", "2");
  if (e.status == 401) r.fields.emplace_back("WWW-Authenticate", "Bearer");
  return r;
}

}  // namespace lily::server
