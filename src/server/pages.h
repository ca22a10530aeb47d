// The files of the chat page, which are part of the program.
#pragma once

#include <optional>
#include <string>

#include "server/http.h"

namespace lily::server {

/// Whether `path` is one of them: they are served without a key.
bool is_page(const std::string& path);
std::optional<http::Reply> page_reply(const std::string& path);

}  // namespace lily::server
