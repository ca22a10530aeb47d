#include "server/pages.h"

namespace lily::server {

bool is_page(const std::string& path) { return path == "/" || path.starts_with("/web/"); }
std::optional<http::Reply> page_reply(const std::string&) { return std::nullopt; }

}  // namespace lily::server
