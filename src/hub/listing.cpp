#include "hub/listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json_fault.h"

namespace lily::hub {
namespace {

using nlohmann::json;

constexpr int kMaxPages = 100;

bool is_hex(std::string_view text, std::size_t length) {
  return text.size() == length && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

json parse(const HttpReply& reply) {
  json value = parse_json_or_null(reply.body);
  if (value.is_null()) throw Error(ErrorCode::corrupt, reply.url + ": the hub's answer is not JSON");
  return value;
}

std::string string_of(const json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// The address after rel="next" in a Link header, "" when there is none.
std::string next_page(const std::string& link) {
  const auto relation = link.find("rel=\"next\"");
  if (relation == std::string::npos) return {};
  const auto end = link.rfind('>', relation);
  const auto begin = end == std::string::npos ? end : link.rfind('<', end);
  return begin == std::string::npos ? std::string() : link.substr(begin + 1, end - begin - 1);
}

RemoteFile parse_entry(const json& entry, const std::string& url) {
  RemoteFile file;
  file.path = string_of(entry, "path");
  const auto corrupt = [&](const std::string& what) {
    return Error(ErrorCode::corrupt, fmt::format("{}: the hub lists '{}' {}", url, printable(file.path), what));
  };
  check_file_name(file.path);
  const auto size = entry.find("size");
  if (size == entry.end() || !size->is_number_unsigned()) throw corrupt("without a size");
  file.size = size->get<std::uint64_t>();
  const auto lfs = entry.find("lfs");
  if (lfs != entry.end() && lfs->is_object()) {
    file.sha256 = string_of(*lfs, "oid");
    if (file.sha256.rfind("sha256:", 0) == 0) file.sha256.erase(0, 7);
    if (!is_hex(file.sha256, 64)) throw corrupt("without a SHA-256");
  } else {
    file.git_blob = string_of(entry, "oid");
    if (!is_hex(file.git_blob, 40)) throw corrupt("without a hash");
  }
  return file;
}

}  // namespace

const RemoteFile* Listing::find(std::string_view path) const {
  const auto found =
      std::find_if(files.begin(), files.end(), [&](const RemoteFile& file) { return file.path == path; });
  return found == files.end() ? nullptr : &*found;
}

std::string RepoAddress::file_url(const std::string& commit, const std::string& path) const {
  return endpoint + "/" + repo + "/resolve/" + commit + "/" + url_segment(path);
}

void check_repo_name(const std::string& repo) {
  const auto good_part = [](std::string_view part) {
    return !part.empty() && part.size() <= 96 && part.front() != '.' && part.front() != '-' &&
           part.find("..") == std::string_view::npos &&
           part.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
               std::string_view::npos;
  };
  const auto slash = repo.find('/');
  const bool good = slash == std::string::npos ? good_part(repo)
                                               : good_part(repo.substr(0, slash)) && good_part(repo.substr(slash + 1));
  if (!good) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("'{}' does not name a repository; expected OWNER/NAME", printable(repo)));
  }
}

void check_file_name(const std::string& path) {
  bool good = !path.empty() && path.size() <= 1024 && path.front() != '/';
  for (const unsigned char c : path) good = good && c >= 0x20 && c != 0x7f && c != '\\';
  for (std::size_t begin = 0; good && begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = std::string_view(path).substr(begin, end - begin);
    good = !part.empty() && part != "." && part != ".." && part.size() <= 240;
    begin = end + 1;
  }
  if (!good) {
    throw Error(ErrorCode::corrupt,
                fmt::format("the hub lists the file name '{}', which is refused: it is empty or could "
                            "lead out of the model's folder. Nothing was downloaded.",
                            printable(path)));
  }
}

std::string printable(std::string_view text) {
  std::string result(text.substr(0, 200));
  for (char& c : result) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return result;
}

void throw_status(const HttpReply& reply, const RepoAddress& address, const std::string& what) {
  std::string said = printable(reply.header("x-error-message"));
  if (!said.empty()) said = " (\"" + said + "\")";
  const std::string where = address.endpoint;
  if (reply.status == 401 || reply.status == 403) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("{}: {} says {}{}. It does not exist, or is private, or its terms must be accepted there first: "
                    "set HF_TOKEN to a token that may read it (or correct the one that is set)",
                    what, where, reply.status, said));
  }
  if (reply.status == 404 || reply.status == 410) {
    throw Error(ErrorCode::not_found,
                fmt::format("{}: {} says that there is no such thing ({}){}", what, where, reply.status, said));
  }
  throw Error(ErrorCode::io, fmt::format("{}: {} answered {}{}", what, where, reply.status, said));
}

Listing fetch_listing(Http& http, const RepoAddress& address) {
  const std::string api = address.endpoint + "/api/models/" + address.repo;
  const std::string named = address.repo + " at revision '" + address.revision + "'";
  HttpReply reply = http.get(api + "/revision/" + url_segment(address.revision));
  if (reply.status != 200) throw_status(reply, address, named);
  Listing listing;
  listing.commit = string_of(parse(reply), "sha");
  if (!is_hex(listing.commit, 40)) {
    throw Error(ErrorCode::corrupt, reply.url + ": the hub's answer names no commit ('sha'). Is HF_ENDPOINT a hub?");
  }

  std::string url = api + "/tree/" + listing.commit + "?recursive=true";
  for (int page = 0; !url.empty(); ++page) {
    if (page == kMaxPages) throw Error(ErrorCode::corrupt, named + ": the hub's listing does not end");
    reply = http.get(url);
    if (reply.status != 200) throw_status(reply, address, named);
    const json entries = parse(reply);
    if (!entries.is_array()) throw Error(ErrorCode::corrupt, reply.url + ": the hub's listing is not a list");
    for (const json& entry : entries) {
      if (!entry.is_object()) throw Error(ErrorCode::corrupt, reply.url + ": the hub's listing holds a non-object");
      if (string_of(entry, "type") == "directory") {
        check_file_name(string_of(entry, "path"));
      } else {
        listing.files.push_back(parse_entry(entry, url));
      }
    }
    const std::string next = next_page(reply.header("link"));
    url = next.empty() ? next : url_resolve(url, next);
    if (!url.empty() && url_origin(url) != url_origin(address.endpoint)) {
      throw Error(ErrorCode::corrupt, named + ": the hub's listing goes on at another host, which is refused");
    }
  }
  return listing;
}

bool is_side_file(std::string_view path) {
  static const std::set<std::string_view> names = {"config.json",
                                                   "generation_config.json",
                                                   "tokenizer.json",
                                                   "tokenizer_config.json",
                                                   "chat_template.json",
                                                   "chat_template.jinja",
                                                   "vocab.json",
                                                   "merges.txt",
                                                   "added_tokens.json",
                                                   "special_tokens_map.json",
                                                   "README.md",
                                                   "LICENSE",
                                                   "LICENSE.txt",
                                                   "LICENSE.md",
                                                   "NOTICE"};
  return names.count(path) != 0;
}

std::vector<std::string> shards_of_index(const std::string& text, const std::string& path) {
  const json index = parse_json_or_null(text);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object() || map->empty()) {
    throw Error(ErrorCode::corrupt, path + ": no weight_map that says which shard holds which tensor");
  }
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string())
      throw Error(ErrorCode::corrupt, path + ": the shard of " + printable(tensor) + " is no name");
    check_file_name(shard.get<std::string>());
    shards.insert(shard.get<std::string>());
  }
  return {shards.begin(), shards.end()};
}

}  // namespace lily::hub
