#include "hub/http.h"

#include <curl/curl.h>

#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "base/ascii.h"
#include "base/error.h"

namespace lily::hub {
namespace {

constexpr int kMaxRedirects = 10;
constexpr std::size_t kMaxBody = std::size_t(64) << 20;
constexpr long kConnectSeconds = 30;
constexpr long kSilentSeconds = 60;  // a transfer without a byte for so long is given up

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

using Url = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

std::string url_part(CURLU* url, CURLUPart part, unsigned int flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return {};
  std::string result = text;
  curl_free(text);
  return result;
}

void set_protocols(CURL* curl) {
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

}  // namespace

std::string HttpReply::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string() : found->second;
}

/// What libcurl's callbacks share. Exceptions may not pass through C: they wait in `failure`.
struct Http::Transfer {
  HttpReply reply;
  const Sink& sink;
  const std::function<bool()>& stopped;
  std::exception_ptr failure;
  bool cancelled = false;

  static size_t on_header(char* data, size_t, size_t length, void* self_pointer) {
    auto& self = *static_cast<Transfer*>(self_pointer);
    const std::string_view line(data, length);
    if (line.substr(0, 5) == "HTTP/") {  // an interim answer (100, a proxy's) came before this one
      self.reply.headers.clear();
      const auto space = line.find(' ');
      self.reply.status = space == std::string_view::npos ? 0 : std::atol(std::string(line.substr(space)).c_str());
    } else if (const auto colon = line.find(':'); colon != std::string_view::npos) {
      self.reply.headers[ascii_lower(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
    }
    return length;
  }

  static size_t on_body(char* data, size_t, size_t length, void* self_pointer) {
    auto& self = *static_cast<Transfer*>(self_pointer);
    try {
      if (self.sink && (self.reply.status == 200 || self.reply.status == 206)) {
        self.sink(self.reply, {data, length});
      } else if (self.reply.body.size() + length > kMaxBody) {
        throw Error(ErrorCode::corrupt, "the hub's answer is longer than 64 MiB where a short one is expected");
      } else {
        self.reply.body.append(data, length);
      }
      return length;
    } catch (...) {
      self.failure = std::current_exception();
      return length + 1;  // anything but length ends the transfer
    }
  }

  static int on_progress(void* self_pointer, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    auto& self = *static_cast<Transfer*>(self_pointer);
    self.cancelled = self.stopped && self.stopped();
    return self.cancelled ? 1 : 0;
  }
};

Http::Http(std::string token, std::function<bool()> stopped) : token_(std::move(token)), stopped_(std::move(stopped)) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  curl_ = curl_easy_init();
  if (curl_ == nullptr) throw Error(ErrorCode::internal, "libcurl does not start");
  if (token_.find_first_of("\r\n") != std::string::npos) {
    throw Error(ErrorCode::invalid_argument, "HF_TOKEN holds a line break");
  }
}

Http::~Http() {
  curl_easy_cleanup(static_cast<CURL*>(curl_));
}

HttpReply Http::get_once(const std::string& url, const std::vector<std::string>& headers, bool with_token,
                         const Sink& sink) {
  CURL* curl = static_cast<CURL*>(curl_);
  curl_easy_reset(curl);  // keeps the connections
  Transfer transfer{{}, sink, stopped_, nullptr, false};
  transfer.reply.url = url;

  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> list(nullptr, curl_slist_free_all);
  const auto add = [&list](const std::string& line) {
    curl_slist* longer = curl_slist_append(list.get(), line.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    (void)list.release();  // the new head owns what the old one did
    list.reset(longer);
  };
  for (const std::string& line : headers) add(line);
  if (with_token) add("Authorization: Bearer " + token_);

  char reason[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, list.get());
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "lily");
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  set_protocols(curl);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, kSilentSeconds);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &Transfer::on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Transfer::on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);

  const CURLcode code = curl_easy_perform(curl);
  if (transfer.failure) std::rethrow_exception(transfer.failure);
  if (transfer.cancelled) throw Error(ErrorCode::cancelled, "stopped");
  if (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT) {
    throw Error(ErrorCode::invalid_argument, url + ": not an http or https address");
  }
  if (code != CURLE_OK) {
    throw TransferFault{url + ": " + (reason[0] != '\0' ? reason : curl_easy_strerror(code))};
  }
  return std::move(transfer.reply);
}

HttpReply Http::get(const std::string& url, const std::vector<std::string>& headers, const Sink& sink) {
  const std::string home = url_origin(url);
  bool with_token = !token_.empty();
  std::string here = url;
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    HttpReply reply = get_once(here, headers, with_token, sink);
    const std::string location = reply.header("location");
    if (!is_redirect(reply.status) || location.empty()) return reply;
    std::string next = url_resolve(here, location);
    const std::string origin = url_origin(next);
    if (url_origin(here).rfind("https:", 0) == 0 && origin.rfind("https:", 0) != 0) {
      throw Error(ErrorCode::unsupported, here + " redirects to an unencrypted address, which is refused");
    }
    with_token = with_token && origin == home;
    here = std::move(next);
  }
  throw Error(ErrorCode::io, url + ": more than ten redirects");
}

std::string url_segment(std::string_view text) {
  char* escaped = curl_easy_escape(nullptr, text.data(), static_cast<int>(text.size()));
  if (escaped == nullptr) throw std::bad_alloc();
  std::string result = escaped;
  curl_free(escaped);
  return result;
}

std::string url_resolve(const std::string& base, const std::string& location) {
  const Url url(curl_url(), curl_url_cleanup);
  if (curl_url_set(url.get(), CURLUPART_URL, base.c_str(), 0) != CURLUE_OK ||
      curl_url_set(url.get(), CURLUPART_URL, location.c_str(), 0) != CURLUE_OK) {
    throw Error(ErrorCode::corrupt, base + " redirects to something that is no address");
  }
  return url_part(url.get(), CURLUPART_URL);
}

std::string url_origin(const std::string& text) {
  const Url url(curl_url(), curl_url_cleanup);
  const bool valid = curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) == CURLUE_OK;
  const std::string scheme = valid ? ascii_lower(url_part(url.get(), CURLUPART_SCHEME)) : "";
  const std::string host = valid ? ascii_lower(url_part(url.get(), CURLUPART_HOST)) : "";
  if ((scheme != "http" && scheme != "https") || host.empty()) {
    throw Error(ErrorCode::invalid_argument, "'" + text + "' is not an address that begins with https:// or http://");
  }
  return scheme + "://" + host + ":" + url_part(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

}  // namespace lily::hub
