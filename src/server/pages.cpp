#include "server/pages.h"

#include "server/web_files.h"

namespace lily::server {

namespace {

// Nothing from elsewhere, nothing inline: what a model writes can at worst look odd.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; worker-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

}  // namespace

bool is_page(const std::string& path) { return path == "/" || path.starts_with("/web/"); }

std::optional<http::Reply> page_reply(const std::string& path) {
  if (!is_page(path)) return std::nullopt;
  for (unsigned i = 0; i < kWebFileCount; ++i) {
    const WebFile& f = kWebFiles[i];
    if (path != f.path) continue;
    return http::Reply{.status = 200,
                       .fields = {{"Content-Type", f.content_type},
                                  {"Content-Security-Policy", kPolicy},
                                  {"X-Content-Type-Options", "nosniff"},
                                  {"Referrer-Policy", "no-referrer"},
                                  {"Cache-Control", "no-cache"}},
                       .body = std::string(reinterpret_cast<const char*>(f.data), f.size)};
  }
  return std::nullopt;
}

}  // namespace lily::server
