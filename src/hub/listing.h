// What a hub says a repository holds, and which of it a model needs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hub/http.h"

namespace lily::hub {

struct RemoteFile {
  std::string path;
  std::uint64_t size = 0;
  std::string sha256;    // large files
  std::string git_blob;  // the others: SHA-1 of the git object
};

struct Listing {
  std::string commit;  // 40 hexadecimal digits: what the revision was when it was asked for
  std::vector<RemoteFile> files;

  const RemoteFile* find(std::string_view path) const;
};

/// A repository at a hub.
struct RepoAddress {
  std::string endpoint;  // "https://host", no slash at the end
  std::string repo;      // "owner/name"
  std::string revision;  // branch, tag or commit

  /// Where a file of that commit lies.
  std::string file_url(const std::string& commit, const std::string& path) const;
};

/// Error(invalid_argument) unless `repo` is "owner/name" (or "name") of letters, digits, '-', '_' and '.'.
void check_repo_name(const std::string& repo);
/// Error(corrupt) for a file name that could lead out of its folder, or that a terminal or file system could trip over.
void check_file_name(const std::string& path);
/// The text with everything but printable ASCII replaced, cut to 200 characters: for messages that quote a stranger.
std::string printable(std::string_view text);

/// Asks the hub. Error(not_found), Error(unsupported) for 401 and 403 (names HF_TOKEN), Error(corrupt) for an answer
/// that makes no sense or a hostile file name, Error(io) for other statuses.
Listing fetch_listing(Http& http, const RepoAddress& address);
/// Throws what an answer other than 200 and 206 means. `what` is the repository or a file of it.
[[noreturn]] void throw_status(const HttpReply& reply, const RepoAddress& address, const std::string& what);

/// Files beside the weights that a model directory may hold and Lily or its reader wants.
bool is_side_file(std::string_view path);
/// The shards that an index names, each once, in order. Error(corrupt).
std::vector<std::string> shards_of_index(const std::string& json, const std::string& path);

}  // namespace lily::hub
