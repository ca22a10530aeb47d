#include "hub/download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "base/digest.h"
#include "base/error.h"
#include "base/json_fault.h"

namespace lily::hub {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kTries = 5;  // broken transfers in a row that brought nothing
constexpr double kLongestWait = 60;

fs::path part_of(const fs::path& target) {
  return target.string() + ".part";
}
fs::path note_of(const fs::path& target) {
  return target.string() + ".part.json";
}
std::string hash_of(const RemoteFile& file) {
  return file.sha256.empty() ? file.git_blob : file.sha256;
}
Digest digest_of(const RemoteFile& file) {
  return Digest(file.sha256.empty() ? Digest::Kind::git_blob : Digest::Kind::sha256, file.size);
}

[[noreturn]] void throw_cancelled() {
  throw Error(ErrorCode::cancelled, "stopped");
}

[[noreturn]] void throw_os(const fs::path& path, const char* did, int error, std::uint64_t needed) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    std::error_code ignored;
    const auto space = fs::space(path.parent_path(), ignored);
    throw Error(ErrorCode::io,
                fmt::format("{}: no room ({}): {} more bytes are needed, {} are free. What has come so far "
                            "is kept: make room and run the same command again",
                            path.string(), std::strerror(error), needed, ignored ? 0 : space.available));
  }
  throw Error(ErrorCode::io, fmt::format("{}: cannot {} it: {}", path.string(), did, std::strerror(error)));
}

/// A file that is written through its descriptor and never through a link.
class OutFile {
 public:
  explicit OutFile(fs::path path) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd_ < 0 && errno == ELOOP) {
      throw Error(ErrorCode::io, path_.string() + ": is a symbolic link, which is not written through. Remove it");
    }
    if (fd_ < 0) throw_os(path_, "open", errno, 0);
  }
  ~OutFile() { ::close(fd_); }
  OutFile(const OutFile&) = delete;
  OutFile& operator=(const OutFile&) = delete;

  std::uint64_t size() const {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) throw_os(path_, "read", errno, 0);
    return static_cast<std::uint64_t>(info.st_size);
  }
  void truncate(std::uint64_t size) {
    if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) throw_os(path_, "cut", errno, 0);
  }
  /// `size`: of the whole file in the end, for the message.
  void write(std::uint64_t offset, std::string_view bytes, std::uint64_t size) {
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw_os(path_, "write", errno, size - offset);
      bytes.remove_prefix(static_cast<std::size_t>(n));
      offset += static_cast<std::uint64_t>(n);
    }
  }
  void read_into(Digest& digest, std::uint64_t size, const std::function<bool()>& stopped) const {
    std::vector<char> buffer(std::size_t(1) << 20);
    for (std::uint64_t at = 0; at < size;) {
      if (stopped && stopped()) throw_cancelled();
      const std::size_t want = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), size - at));
      const ssize_t n = ::pread(fd_, buffer.data(), want, static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw_os(path_, "read", n < 0 ? errno : EIO, 0);
      digest.update({buffer.data(), static_cast<std::size_t>(n)});
      at += static_cast<std::uint64_t>(n);
    }
  }
  void sync() {
    if (::fsync(fd_) != 0) throw_os(path_, "write", errno, 0);
  }

 private:
  fs::path path_;
  int fd_ = -1;
};

/// What .part.json says: whose bytes the .part holds, and the validator its server gave.
struct Note {
  std::string hash, etag;
};

std::optional<Note> read_note(const fs::path& path) {
  std::ifstream in(path);
  const json value = parse_json_or_null(std::string(std::istreambuf_iterator<char>(in), {}));
  if (!value.is_object() || !value.contains("hash") || !value["hash"].is_string()) return std::nullopt;
  return Note{value["hash"], value.contains("etag") && value["etag"].is_string() ? value["etag"] : json("")};
}

void write_note(const fs::path& path, const Note& note) {
  std::error_code ignored;
  fs::remove(path, ignored);  // a link, say
  std::ofstream(path) << json{{"hash", note.hash}, {"etag", note.etag}}.dump() << "\n";
}

/// "bytes 5-9/10" → 5 when the whole is `size` (or unknown).
bool range_begins_at(const std::string& header, std::uint64_t offset, std::uint64_t size) {
  unsigned long long begin = 0, end = 0;
  int used = 0;
  if (std::sscanf(header.c_str(), "bytes %llu-%llu/%n", &begin, &end, &used) != 2 || used == 0) return false;
  const std::string whole = header.substr(static_cast<std::size_t>(used));
  return begin == offset && (whole == "*" || whole == std::to_string(size));
}

/// The download of one file: its bytes so far, and the rules for going on.
class Download {
 public:
  Download(const DownloadContext& context, const RemoteFile& file)
      : context_(context),
        file_(file),
        target_(context.dir / file.path),
        part_(part_of(target_)),
        digest_(digest_of(file)) {
    const auto note = read_note(note_of(target_));
    const std::uint64_t have = part_.size();
    if (have > 0 && note && note->hash == hash_of(file) && have <= file.size) {
      etag_ = note->etag;
      part_.read_into(digest_, have, context.stopped);
      offset_ = have;
      context_.advance(have, false);
    } else {
      restart();
    }
  }

  void run() {
    for (bool again = false;;) {
      fetch_all();
      part_.sync();
      const std::string found = digest_.finish();
      if (found == hash_of(file_)) break;
      if (!resumed_ || again) refuse(found);
      restart();  // bytes from before a break may be at fault: once more, all of it
      again = true;
    }
    std::error_code error;
    fs::rename(part_of(target_), target_, error);
    if (error) throw_os(target_, "create", error.value(), 0);
    fs::remove(note_of(target_), error);
  }

 private:
  void restart() {
    context_.retreat(offset_);
    part_.truncate(0);
    digest_ = digest_of(file_);
    offset_ = 0;
    resumed_ = false;
    etag_.clear();
    write_note(note_of(target_), {hash_of(file_), ""});
  }

  [[noreturn]] void refuse(const std::string& found) {
    std::error_code ignored;
    fs::remove(part_of(target_), ignored);
    fs::remove(note_of(target_), ignored);
    throw Error(
        ErrorCode::corrupt,
        fmt::format("{}: its {} is {}, the hub lists {}. The bytes were damaged on the way or at the hub; what came "
                    "is deleted. Run the same command again",
                    target_.string(), file_.sha256.empty() ? "git hash" : "SHA-256", found, hash_of(file_)));
  }

  void fetch_all() {
    int fruitless = 0;
    double wait = context_.retry_seconds;
    while (offset_ < file_.size) {
      const std::uint64_t before = received_;
      std::string fault;
      try {
        fault = fetch_once();
      } catch (const TransferFault& broken) {
        fault = broken.message;
      }
      if (offset_ == file_.size) return;
      if (received_ > before) {
        fruitless = 0;
        wait = context_.retry_seconds;
      } else if (++fruitless == kTries) {
        throw Error(ErrorCode::io,
                    fmt::format("{}: the download broke off at byte {} of {}: {}. What has come so far is "
                                "kept: run the same command again to go on",
                                target_.string(), offset_, file_.size, fault));
      }
      pause(wait);
      wait = std::min(wait * 2, kLongestWait);
    }
  }

  /// One request for what is missing. Returns why it did not bring all of it.
  std::string fetch_once() {
    std::vector<std::string> headers;
    if (offset_ > 0) {
      resumed_ = true;
      headers.push_back(fmt::format("Range: bytes={}-", offset_));
      // A weak validator cannot vouch for bytes; the hash at the end does then.
      if (!etag_.empty() && etag_.rfind("W/", 0) != 0) headers.push_back("If-Range: " + etag_);
    }
    bool first = true;
    const auto sink = [&](const HttpReply& head, std::string_view bytes) {
      if (first) begin_body(head);
      first = false;
      take(bytes);
    };
    const HttpReply reply = context_.http.get(context_.address.file_url(context_.commit, file_.path), headers, sink);
    if (reply.status == 200 || reply.status == 206) return "the connection ended early";
    if (reply.status == 416) {
      restart();
      return "the hub cannot go on from there (416)";
    }
    if (reply.status == 429 || reply.status >= 500) return fmt::format("the hub answers {}", reply.status);
    throw_status(reply, context_.address, context_.address.repo + ", file " + file_.path);
  }

  void begin_body(const HttpReply& head) {
    if (head.status == 206 && !range_begins_at(head.header("content-range"), offset_, file_.size)) {
      const std::string got = printable(head.header("content-range"));
      const std::uint64_t asked = offset_;
      restart();
      throw TransferFault{fmt::format("asked for bytes from {}, got '{}'", asked, got)};
    }
    if (head.status == 200 && offset_ > 0) restart();  // no ranges here, or the file has changed
    const std::string length = head.header("content-length");
    if (!length.empty() && length != std::to_string(file_.size - offset_)) {
      throw Error(
          ErrorCode::corrupt,
          fmt::format("{}: the hub lists {} bytes, of which {} are missing, but sends {}. Run the same command again",
                      target_.string(), file_.size, file_.size - offset_, printable(length)));
    }
    etag_ = head.header("etag");
    write_note(note_of(target_), {hash_of(file_), etag_});
  }

  void take(std::string_view bytes) {
    if (bytes.size() > file_.size - offset_) {
      throw Error(ErrorCode::corrupt,
                  fmt::format("{}: the hub lists {} bytes and sends more", target_.string(), file_.size));
    }
    part_.write(offset_, bytes, file_.size);
    digest_.update(bytes);
    offset_ += bytes.size();
    received_ += bytes.size();
    context_.advance(bytes.size(), true);
  }

  void pause(double seconds) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < end) {
      if (context_.stopped && context_.stopped()) throw_cancelled();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  const DownloadContext& context_;
  const RemoteFile& file_;
  fs::path target_;
  OutFile part_;
  Digest digest_;
  std::string etag_;
  std::uint64_t offset_ = 0;    // bytes of the .part, all of them in digest_
  std::uint64_t received_ = 0;  // over the network, useless ones too
  bool resumed_ = false;        // the bytes come from more than one transfer, or may
};

}  // namespace

void download(const DownloadContext& context, const RemoteFile& file) {
  Download(context, file).run();
}

bool matches(const fs::path& path, const RemoteFile& file, const std::function<bool()>& stopped) {
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(path, error)) || fs::file_size(path, error) != file.size) return false;
  Digest digest = digest_of(file);
  std::ifstream in(path, std::ios::binary);
  std::vector<char> buffer(std::size_t(1) << 20);
  while (in) {
    if (stopped && stopped()) throw_cancelled();
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    digest.update({buffer.data(), static_cast<std::size_t>(in.gcount())});
  }
  return in.eof() && digest.finish() == hash_of(file);
}

std::uint64_t bytes_kept(const fs::path& dir, const RemoteFile& file) {
  std::error_code error;
  const fs::path target = dir / file.path;
  const auto note = read_note(note_of(target));
  const std::uint64_t have = fs::file_size(part_of(target), error);
  return !error && note && note->hash == hash_of(file) && have <= file.size ? have : 0;
}

}  // namespace lily::hub
