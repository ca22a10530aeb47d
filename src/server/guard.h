// Who may ask: checked on a request's head, for every route, before its body is read.
//
// - Host must name this machine (DNS rebinding: a page of another site whose name was made to point here). An IP address always
//   does, and localhost; other names must be listed.
// - Origin, which browsers send, must be this server itself or be listed. Nobody else's page reads or causes anything.
// - A body must come as JSON: a page can send text/plain to any site without asking.
// - The key, where one is set, is needed on every route but /health and the files of the page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/http.h"

namespace lily::server {

struct GuardOptions {
  std::string api_key;                       // empty: none is needed
  std::vector<std::string> allowed_hosts;    // names beyond localhost and addresses
  std::vector<std::string> allowed_origins;  // as browsers write them: "https://chat.example"
};

class Guard {
 public:
  explicit Guard(GuardOptions options);
  /// A reply that refuses the request, or answers a browser's question about it (preflight).
  std::optional<http::Reply> check(const http::RequestHead& head) const;
  /// What an answer to this request must carry so that an allowed page may read it.
  http::Fields cors(const http::RequestHead& head) const;

 private:
  bool host_allowed(const std::string& host) const;
  bool origin_allowed(const std::string& origin, const std::string& host) const;
  bool key_right(const http::RequestHead& head) const;

  GuardOptions options_;
};

/// The host of a Host field or an origin, in lower case, without port, brackets and trailing dot. Empty: it is none.
std::string host_name(const std::string& field);
/// Whether a browser can send it as Origin: a scheme and a host, without a path; or null.
bool is_origin(const std::string& text);

}  // namespace lily::server
