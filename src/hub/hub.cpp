#include "hub/hub.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/error.h"
#include "base/json_fault.h"
#include "hub/download.h"
#include "hub/listing.h"

namespace lily::hub {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kRecord = ".lily-pull.json";
constexpr const char* kLock = ".lily-pull.lock";
constexpr const char* kIndex = "model.safetensors.index.json";

bool is_local(const std::string& origin) {
  for (const char* host : {"http://127.0.0.1:", "http://localhost:", "http://[::1]:"}) {
    if (origin.rfind(host, 0) == 0) return true;
  }
  return false;
}

std::string checked_endpoint(const PullOptions& options) {
  if (options.endpoint.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "HF_ENDPOINT is not set: it names the hub to download from, as in HF_ENDPOINT=https://HUB lily pull "
                "OWNER/NAME (and HF_TOKEN the token for private models)");
  }
  std::string endpoint = options.endpoint;
  while (!endpoint.empty() && endpoint.back() == '/') endpoint.pop_back();
  std::string origin;
  try {
    origin = url_origin(endpoint);
  } catch (const Error& error) {
    throw Error(error.code(), std::string("HF_ENDPOINT: ") + error.what());
  }
  if (!options.token.empty() && origin.rfind("http:", 0) == 0 && !is_local(origin)) {
    throw Error(ErrorCode::invalid_argument,
                "HF_ENDPOINT is unencrypted, and HF_TOKEN would be readable on the way: use https, or unset HF_TOKEN");
  }
  return endpoint;
}

/// Only one pull works on a directory at a time. The lock goes with the process.
class DirectoryLock {
 public:
  explicit DirectoryLock(const fs::path& dir) {
    const fs::path path = dir / kLock;
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd_ < 0) throw Error(ErrorCode::io, path.string() + ": cannot create it: " + std::strerror(errno));
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      ::close(fd_);
      throw Error(ErrorCode::io, dir.string() + ": another lily pull is working on it");
    }
  }
  ~DirectoryLock() { ::close(fd_); }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int fd_ = -1;
};

/// What an earlier pull verified: repo, and for each file the hash, size and time of change it had.
class Record {
 public:
  explicit Record(const fs::path& dir) : path_(dir / kRecord) {
    std::ifstream in(path_);
    json read = parse_json_or_null(std::string(std::istreambuf_iterator<char>(in), {}));
    if (read.is_object() && read.contains("repo") && read["repo"].is_string() && read.contains("files") &&
        read["files"].is_object()) {
      value_ = std::move(read);
    }
  }
  std::string repo() const { return value_["repo"]; }
  bool knows(const RemoteFile& file, const fs::path& path) const {
    const auto found = value_["files"].find(file.path);
    return found != value_["files"].end() && *found == entry(file, path);
  }
  void add(const RemoteFile& file, const fs::path& path) { value_["files"][file.path] = entry(file, path); }
  std::vector<std::string> paths() const {
    std::vector<std::string> result;
    for (const auto& [path, entry] : value_["files"].items()) result.push_back(path);
    return result;
  }
  void forget(const std::string& path) { value_["files"].erase(path); }
  void save(const std::string& repo, const std::string& commit) {
    value_["repo"] = repo;
    value_["commit"] = commit;
    const fs::path fresh = path_.string() + ".new";
    std::ofstream(fresh) << value_.dump(1) << "\n";
    std::error_code ignored;  // without the record a later pull hashes again, nothing worse
    fs::rename(fresh, path_, ignored);
  }

 private:
  static json entry(const RemoteFile& file, const fs::path& path) {
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return nullptr;
    if (static_cast<std::uint64_t>(info.st_size) != file.size) return nullptr;
    return {{"hash", file.sha256.empty() ? file.git_blob : file.sha256},
            {"size", file.size},
            {"changed", static_cast<std::int64_t>(info.st_mtime)}};
  }

  fs::path path_;
  json value_ = {{"repo", ""}, {"commit", ""}, {"files", json::object()}};
};

/// The work of one pull, in the order of its functions.
class Pull {
 public:
  Pull(const std::string& repo, const PullOptions& options)
      : options_(options),
        address_{checked_endpoint(options), repo, options.revision},
        http_(options.token, options.stopped) {
    check_repo_name(repo);
    const std::string name = options.name.empty() ? repo.substr(repo.find('/') + 1) : options.name;
    if (name.find('/') != std::string::npos) {
      throw Error(ErrorCode::invalid_argument, fmt::format("the name '{}' holds a '/'", printable(name)));
    }
    check_repo_name(name);
    report_.name = name;
    report_.dir = options.models_dir / name;
  }

  PullReport run() {
    listing_ = fetch_listing(http_, address_);
    report_.commit = listing_.commit;
    choose();
    if (options_.check_config) options_.check_config(fetch_text(needed("config.json")));
    std::error_code error;
    fs::create_directories(report_.dir, error);
    if (error) throw Error(ErrorCode::io, report_.dir.string() + ": cannot create it: " + error.message());
    const DirectoryLock lock(report_.dir);
    Record record(report_.dir);
    if (!record.repo().empty() && record.repo() != address_.repo) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} holds {}: choose another name for {} with --name", report_.dir.string(),
                              printable(record.repo()), address_.repo));
    }
    remove_stale(record);
    fetch(missing(record), record);
    record.save(address_.repo, listing_.commit);
    return report_;
  }

 private:
  const RemoteFile& needed(const std::string& path) const {
    const RemoteFile* file = listing_.find(path);
    if (file == nullptr) {
      throw Error(ErrorCode::not_found, fmt::format("{} at revision '{}' has no {}, which a model needs", address_.repo,
                                                    address_.revision, path));
    }
    return *file;
  }

  /// A small file, verified, without touching the disk.
  std::string fetch_text(const RemoteFile& file) {
    const std::string what = address_.repo + ", file " + file.path;
    HttpReply reply;
    try {
      reply = http_.get(address_.file_url(listing_.commit, file.path));
    } catch (const TransferFault& fault) {
      throw Error(ErrorCode::io, what + ": " + fault.message);
    }
    if (reply.status != 200) throw_status(reply, address_, what);
    Digest digest(file.sha256.empty() ? Digest::Kind::git_blob : Digest::Kind::sha256, file.size);
    digest.update(reply.body);
    if (digest.finish() != (file.sha256.empty() ? file.git_blob : file.sha256)) {
      throw Error(ErrorCode::corrupt, what + ": what the hub sends has not the hash that it lists");
    }
    return reply.body;
  }

  void choose() {
    needed("config.json");
    needed("tokenizer.json");
    std::vector<std::string> weights;
    if (const RemoteFile* index = listing_.find(kIndex)) {
      weights = shards_of_index(fetch_text(*index), kIndex);
      wanted_.push_back(index);
    } else {
      for (const RemoteFile& file : listing_.files) {
        if (file.path.find('/') == std::string::npos && file.path.size() > 12 &&
            file.path.compare(file.path.size() - 12, 12, ".safetensors") == 0) {
          weights.push_back(file.path);
        }
      }
    }
    if (weights.empty()) needed("*.safetensors");
    for (const std::string& shard : weights) {
      if (shard.find('/') != std::string::npos) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("{}: the shard '{}' lies in a folder of the repository, which is not "
                                "supported",
                                kIndex, printable(shard)));
      }
      wanted_.push_back(&needed(shard));
    }
    for (const RemoteFile& file : listing_.files) {
      if (is_side_file(file.path) && file.path != "config.json") wanted_.push_back(&file);
    }
    wanted_.push_back(&needed("config.json"));  // last: its presence says that the model is whole
    for (const RemoteFile* file : wanted_) report_.bytes += file->size;
    report_.files = static_cast<int>(wanted_.size());
  }

  /// Files of an earlier revision that this one has not: a shard too many would be read as part of the model.
  void remove_stale(Record& record) const {
    for (const std::string& path : record.paths()) {
      const auto same = [&](const RemoteFile* file) { return file->path == path; };
      if (std::any_of(wanted_.begin(), wanted_.end(), same)) continue;
      check_file_name(path);
      std::error_code ignored;
      fs::remove(report_.dir / path, ignored);
      record.forget(path);
    }
  }

  std::vector<const RemoteFile*> missing(Record& record) {
    std::vector<const RemoteFile*> result;
    for (const RemoteFile* file : wanted_) {
      const fs::path path = report_.dir / file->path;
      const bool stays = file->path != "config.json" || result.empty();  // the mark of a whole model goes on last
      if (stays && (record.knows(*file, path) || matches(path, *file, options_.stopped))) {
        record.add(*file, path);
        done_ += file->size;
      } else {
        result.push_back(file);
      }
    }
    return result;
  }

  void check_room(const std::vector<const RemoteFile*>& files) const {
    std::uint64_t bytes = 0;
    for (const RemoteFile* file : files) bytes += file->size - bytes_kept(report_.dir, *file);
    std::error_code error;
    const auto space = fs::space(report_.dir, error);
    if (!error && space.available < bytes) {
      throw Error(ErrorCode::io, fmt::format("{}: no room: {} more bytes are needed, {} are free", report_.dir.string(),
                                             bytes, space.available));
    }
  }

  void fetch(const std::vector<const RemoteFile*>& files, Record& record) {
    if (files.empty()) return;
    check_room(files);
    std::error_code ignored;
    fs::remove(report_.dir / "config.json", ignored);  // not whole until it is back
    for (const RemoteFile* file : files) {
      const auto tell = [&] {
        if (options_.progress) options_.progress({file->path, done_, report_.bytes, report_.received});
      };
      const DownloadContext context{http_,
                                    address_,
                                    listing_.commit,
                                    report_.dir,
                                    options_.retry_seconds,
                                    options_.stopped,
                                    [&](std::uint64_t bytes, bool received) {
                                      done_ += bytes;
                                      if (received) report_.received += bytes;
                                      tell();
                                    },
                                    [&](std::uint64_t bytes) {
                                      done_ -= bytes;
                                      tell();
                                    }};
      download(context, *file);
      record.add(*file, report_.dir / file->path);
      record.save(address_.repo, listing_.commit);
    }
  }

  const PullOptions& options_;
  RepoAddress address_;
  Http http_;
  Listing listing_;
  std::vector<const RemoteFile*> wanted_;
  std::uint64_t done_ = 0;
  PullReport report_;
};

}  // namespace

PullReport pull(const std::string& repo, const PullOptions& options) {
  try {
    return Pull(repo, options).run();
  } catch (const TransferFault& fault) {
    throw Error(ErrorCode::io, fault.message + ". Is HF_ENDPOINT right, and the network up?");
  }
}

}  // namespace lily::hub
