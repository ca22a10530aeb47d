#include "replies.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "base/ascii.h"
#include "client.h"

namespace lily::fuzz {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::vector<std::string_view> split(std::string_view text, std::string_view by) {
  std::vector<std::string_view> out;
  for (auto at = text.find(by); at != std::string_view::npos; at = text.find(by)) {
    out.push_back(text.substr(0, at));
    text.remove_prefix(at + by.size());
  }
  out.push_back(text);
  return out;
}

Reply read_head(std::string_view head) {
  const std::vector<std::string_view> lines = split(head, "\r\n");
  Reply r;
  if (!lines[0].starts_with("HTTP/1.1 ") || lines[0].size() < 13 || lines[0][12] != ' ')
    fault(fmt::format("no status line: {}", lines[0]));
  std::from_chars(lines[0].data() + 9, lines[0].data() + 12, r.status);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const auto colon = lines[i].find(": ");
    if (colon == std::string_view::npos || colon == 0) fault(fmt::format("no field: {}", lines[i]));
    for (const char c : lines[i])
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
        fault(fmt::format("a control character in {}", lines[i].substr(0, colon)));
    if (!r.fields.emplace(ascii_lower(lines[i].substr(0, colon)), trimmed(lines[i].substr(colon + 1))).second)
      fault(fmt::format("two fields {}", lines[i].substr(0, colon)));
  }
  return r;
}

/// Takes a body in chunks off `rest`; false: it is cut.
bool read_chunks(std::string_view& rest, std::string& body) {
  while (true) {
    const auto line = rest.find("\r\n");
    if (line == std::string_view::npos) return false;
    std::size_t size = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + line, size, 16);
    if (error != std::errc() || end != rest.data() + line)
      fault(fmt::format("no length of a chunk: {}", rest.substr(0, line)));
    if (rest.size() < line + 2 + size + 2) return false;
    body += rest.substr(line + 2, size);
    if (rest.substr(line + 2 + size, 2) != "\r\n") fault("a chunk longer than its length");
    rest.remove_prefix(line + 2 + size + 2);
    if (size == 0) return true;
  }
}

/// Takes the body off `rest`; false: it is cut.
bool read_body(Reply& r, std::string_view& rest) {
  const auto length = r.fields.find("content-length"), coding = r.fields.find("transfer-encoding");
  if (coding != r.fields.end()) {
    if (length != r.fields.end() || coding->second != "chunked") fault("a reply with a length and chunks");
    return read_chunks(rest, r.body);
  }
  if (r.status == 100 || r.status == 204) {
    if (length != r.fields.end()) fault("a length in a reply that has no body");
    return true;
  }
  if (length == r.fields.end()) {  // HTTP/1.0: to the end of the connection
    r.body = rest;
    rest = {};
    return true;
  }
  std::size_t size = 0;
  std::from_chars(length->second.data(), length->second.data() + length->second.size(), size);
  if (std::to_string(size) != length->second) fault("no length: " + length->second);
  r.body = rest.substr(0, size);
  rest.remove_prefix(r.body.size());
  return r.body.size() == size;
}

void check_events(const std::string& body) {
  const std::vector<std::string_view> events = split(body, "\n\n");
  if (!events.back().empty()) fault(fmt::format("an event that does not end: {}", events.back()));
  for (const std::string_view e : events) {
    if (e.empty() || e.starts_with(":") || e == "data: [DONE]") continue;
    if (!e.starts_with("data: ") || !nlohmann::json::accept(e.substr(6))) fault(fmt::format("no event: {}", e));
  }
}

void check_error(const Reply& r) {
  const nlohmann::json body = nlohmann::json::parse(r.body, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object() || !body.contains("error") || !body["error"].is_object()) fault("no error object: " + r.body);
  for (const char* key : {"message", "type", "param", "code"})
    if (!body["error"].contains(key)) fault(fmt::format("an error without {}: {}", key, r.body));
}

}  // namespace

std::vector<Reply> split_replies(std::string_view bytes, bool may_be_cut, bool heads) {
  std::vector<Reply> replies;
  while (!bytes.empty()) {
    const auto end = bytes.find("\r\n\r\n");
    if (end == std::string_view::npos) {
      if (!may_be_cut) fault(fmt::format("a head that does not end: {}", bytes));
      return replies;
    }
    Reply r = read_head(bytes.substr(0, end));
    bytes.remove_prefix(end + 4);
    if (heads && (bytes.empty() || bytes.starts_with("HTTP/1.1 "))) {
      r.whole = false;
    } else if (!read_body(r, bytes)) {
      if (!may_be_cut) fault(fmt::format("a reply {} that is cut after {} bytes", r.status, r.body.size()));
      r.whole = false;
      bytes = {};
    }
    replies.push_back(std::move(r));
  }
  return replies;
}

void check_reply(const Reply& r) {
  static const std::set<int> kStatuses = {100, 200, 204, 400, 403, 404, 405, 408, 413, 415, 417, 429, 431};
  if (!kStatuses.contains(r.status)) fault(fmt::format("a reply of status {}: {}", r.status, r.body));
  if (r.status == 100 || r.status == 204 || !r.whole) return;
  const auto type = r.fields.find("content-type");
  if (type == r.fields.end()) fault("a reply without Content-Type");
  if (type->second.starts_with("text/event-stream")) check_events(r.body);
  if (type->second == "application/json" && !nlohmann::json::accept(r.body)) fault("no JSON: " + r.body);
  if (r.status >= 400) check_error(r);
}

bool framing_is_faulty(std::string_view sent) {
  const auto end = sent.find("\r\n\r\n");
  if (end == std::string_view::npos) return false;
  const std::vector<std::string_view> lines = split(sent.substr(0, end), "\r\n");
  if (std::count(lines[0].begin(), lines[0].end(), ' ') != 2 || !lines[0].ends_with(" HTTP/1.1")) return false;
  std::set<std::string> lengths;
  int codings = 0;
  bool chunked = true, numbers = true;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const auto colon = lines[i].find(':');
    if (colon == std::string_view::npos || lines[i][0] == ' ' || lines[i][0] == '\t') return false;
    for (const char c : lines[i])
      if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) return false;
    const std::string name = ascii_lower(lines[i].substr(0, colon));
    const std::string_view value = trimmed(lines[i].substr(colon + 1));
    if (name == "transfer-encoding") {
      ++codings;
      chunked &= ascii_lower(value) == "chunked";
    }
    if (name != "content-length") continue;
    for (std::string_view length : split(value, ",")) {  // of equal ones the standard lets a server take either
      length = trimmed(length);
      numbers &= !length.empty() && length.find_first_not_of("0123456789") == std::string_view::npos;
      const auto first = length.find_first_not_of('0');
      lengths.insert(first == std::string_view::npos ? "0" : std::string(length.substr(first)));
    }
  }
  return codings > 1 || !chunked || !numbers || lengths.size() > 1 || (codings > 0 && !lengths.empty());
}

}  // namespace lily::fuzz
