// lily pull: a checkpoint from a hub into a model directory.
//
// The listing of the revision's commit is the contract: which files there are, their sizes and hashes. Only what a
// model needs is fetched, flat into `<models_dir>/<name>`, each file through a .part that survives a stop (download.h).
// config.json goes last, so a directory that has one is whole; `.lily-pull.json` remembers what was verified, so that
// pulling again reads nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace lily::hub {

struct PullProgress {
  const std::string& file;    // being fetched
  std::uint64_t done, total;  // bytes of the model; `done` may fall back when bytes turn out useless
  std::uint64_t received;     // bytes that this pull brought over the network
};

struct PullOptions {
  std::string endpoint;              // HF_ENDPOINT: "https://host"
  std::string token;                 // HF_TOKEN, may be empty
  std::string revision = "main";     // branch, tag or commit
  std::filesystem::path models_dir;  // ~/.cache/lily/models
  std::string name;                  // of the directory; empty: the repository's, without its owner
  double retry_seconds = 1;          // the first wait after a broken transfer
  std::function<bool()> stopped;     // true: stop soon, with Error(cancelled)
  std::function<void(const PullProgress&)> progress;
  /// Sees config.json before any weights are fetched; throws to refuse the model.
  std::function<void(const std::string& config_json)> check_config;
};

struct PullReport {
  std::filesystem::path dir;
  std::string name, commit;
  int files = 0;
  std::uint64_t bytes = 0;     // of all files
  std::uint64_t received = 0;  // over the network, listings aside
};

/// Downloads `repo` ("owner/name"). Nothing is written before the listing was read and found sound and the disk found
/// large enough. Errors: see download.h and listing.h; besides Error(invalid_argument) for an endpoint, name or
/// repository that is none, and for a directory that holds something else; Error(not_found) when a file that a model
/// needs is not in the repository; Error(io) when another pull works on the directory.
PullReport pull(const std::string& repo, const PullOptions& options);

}  // namespace lily::hub
