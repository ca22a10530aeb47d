// GET over libcurl, with redirects followed by hand so that the token stays with the hub it was meant for.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lily::hub {

struct HttpReply {
  long status = 0;
  std::map<std::string, std::string> headers;  // of the last answer; names in lower case
  std::string body;                            // empty when a sink took it
  std::string url;                             // the one that answered

  /// The header's value, "" when it is absent.
  std::string header(const std::string& name) const;
};

/// A transfer that broke off or never began: worth another try. What a server *said* is an HttpReply instead.
struct TransferFault {
  std::string message;
};

class Http {
 public:
  /// `token` may be empty. `stopped` is asked some times a second; true ends the transfer with Error(cancelled).
  Http(std::string token, std::function<bool()> stopped);
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  /// Takes the bytes of a 200 or 206 answer as they come. May throw; the transfer ends then.
  using Sink = std::function<void(const HttpReply& head, std::string_view bytes)>;

  /// GET. At most ten redirects; the token goes only to the first URL's scheme, host and port, and never again once a
  /// redirect has led elsewhere. A body without a sink is kept up to 64 MiB.
  /// Throws TransferFault, Error(cancelled), Error(unsupported) for a redirect that leaves https, and what the sink
  /// throws.
  HttpReply get(const std::string& url, const std::vector<std::string>& headers = {}, const Sink& sink = {});

 private:
  struct Transfer;
  HttpReply get_once(const std::string& url, const std::vector<std::string>& headers, bool with_token,
                     const Sink& sink);

  void* curl_;  // CURL*
  std::string token_;
  std::function<bool()> stopped_;
};

/// Percent-encodes one path segment ('/' included).
std::string url_segment(std::string_view text);
/// `location` as seen from `base`. Error(corrupt) when it is no URL.
std::string url_resolve(const std::string& base, const std::string& location);
/// "https://host:443": what must be equal for a token to be sent. Error(invalid_argument) unless http or https with a
/// host.
std::string url_origin(const std::string& url);

}  // namespace lily::hub
