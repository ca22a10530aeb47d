#include "server/guard.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/crypto.h>

#include <algorithm>

#include "base/ascii.h"
#include "server/api_error.h"
#include "server/pages.h"

namespace lily::server {
namespace {

bool is_address(const std::string& host) {
  unsigned char buffer[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), buffer) == 1 || inet_pton(AF_INET6, host.c_str(), buffer) == 1;
}

bool all_digits(const std::string& text) { return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }); }

http::Reply refusal(int status, const std::string& why, const std::string& code) {
  return error_reply({.status = status, .message = why, .param = {}, .code = code});
}

}  // namespace

std::string host_name(const std::string& field) {
  std::string host = ascii_lower(field);
  if (host.starts_with('[')) {
    const auto end = host.find(']');
    if (end == std::string::npos) return {};
    const std::string rest = host.substr(end + 1);
    if (!rest.empty() && (rest[0] != ':' || !all_digits(rest.substr(1)))) return {};
    return host.substr(1, end - 1);
  }
  if (const auto colon = host.find(':'); colon != std::string::npos) {
    if (!all_digits(host.substr(colon + 1))) return {};
    host.resize(colon);
  }
  if (host.ends_with('.')) host.pop_back();
  const bool clean = std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  });
  return clean ? host : std::string();
}

bool is_origin(const std::string& text) {
  if (text == "null") return true;  // of pages that are files
  const auto scheme = text.find("://");
  return scheme != std::string::npos && scheme > 0 && !host_name(text.substr(scheme + 3)).empty();
}

Guard::Guard(GuardOptions options) : options_(std::move(options)) {
  for (std::string& host : options_.allowed_hosts) host = host_name(host);
  for (std::string& origin : options_.allowed_origins) origin = ascii_lower(origin);
}

bool Guard::host_allowed(const std::string& field) const {
  const std::string host = host_name(field);
  if (host.empty()) return false;
  if (host == "localhost" || host.ends_with(".localhost") || is_address(host)) return true;
  return std::find(options_.allowed_hosts.begin(), options_.allowed_hosts.end(), host) != options_.allowed_hosts.end();
}

bool Guard::origin_allowed(const std::string& field, const std::string& host) const {
  const std::string origin = ascii_lower(field);
  if (std::find(options_.allowed_origins.begin(), options_.allowed_origins.end(), origin) != options_.allowed_origins.end()) return true;
  // This server's own page. TLS, if any, ends before it, so both schemes are its own.
  return origin == "http://" + ascii_lower(host) || origin == "https://" + ascii_lower(host);
}

bool Guard::key_right(const http::RequestHead& head) const {
  if (options_.api_key.empty()) return true;
  std::string given;
  if (const std::string* f = head.field("authorization"); f && ascii_lower(f->substr(0, 7)) == "bearer ") {
    given = f->substr(7);
  } else if (const std::string* x = head.field("x-api-key")) {
    given = *x;
  }
  // The time does not tell how much of it was right.
  const std::string& key = options_.api_key;
  std::string padded = given;
  padded.resize(key.size());
  return CRYPTO_memcmp(padded.data(), key.data(), key.size()) == 0 && given.size() == key.size();
}

http::Fields Guard::cors(const http::RequestHead& head) const {
  const std::string* origin = head.field("origin");
  if (!origin) return {};
  return {{"Access-Control-Allow-Origin", *origin}, {"Vary", "Origin"}, {"Access-Control-Expose-Headers", "x-lily-ignored, retry-after"}};
}

std::optional<http::Reply> Guard::check(const http::RequestHead& head) const {
  if (head.count("host") != 1) return refusal(400, "a request needs exactly one Host", "bad_host");
  const std::string& host = *head.field("host");
  if (!host_allowed(host))
    return refusal(403, "this server does not answer to that Host; --allowed-host NAME adds a name", "host_not_allowed");
  const std::string* origin = head.field("origin");
  if (head.count("origin") > 1 || (origin && !origin_allowed(*origin, host)))
    return refusal(403, "pages of that Origin may not use this server; --allowed-origin ORIGIN adds one", "origin_not_allowed");
  if (head.method == "OPTIONS" && origin && head.field("access-control-request-method")) {
    http::Reply r{.status = 204, .fields = cors(head), .body = {}};
    r.fields.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    r.fields.emplace_back("Access-Control-Allow-Headers", "authorization, content-type, x-api-key");
    r.fields.emplace_back("Access-Control-Max-Age", "600");
    return r;
  }
  if (head.path != "/health" && !is_page(head.path) && !key_right(head))
    return refusal(401, "the API key is missing or wrong: send it as 'Authorization: Bearer KEY'", "invalid_api_key");
  if (head.method == "POST") {
    const std::string* type = head.field("content-type");
    const std::string media = type ? ascii_lower(type->substr(0, type->find(';'))) : "";
    if (media.find_last_not_of(' ') == std::string::npos || media.substr(0, media.find_last_not_of(' ') + 1) != "application/json")
      return refusal(415, "the body must be sent as 'Content-Type: application/json'", "unsupported_media_type");
  }
  return std::nullopt;
}

}  // namespace lily::server
