// One file of a repository onto the disk: resumable, and believed only after its size and hash were checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "hub/http.h"
#include "hub/listing.h"

namespace lily::hub {

struct DownloadContext {
  Http& http;
  const RepoAddress& address;
  std::string commit;
  std::filesystem::path dir;      // where the file comes to lie
  double retry_seconds = 1;       // the first wait after a broken transfer; doubles each time
  std::function<bool()> stopped;  // asked during waits and long reads
  std::function<void(std::uint64_t bytes, bool received)>
      advance;                                       // more bytes are there: just received, or from before
  std::function<void(std::uint64_t bytes)> retreat;  // bytes that advance counted turned out useless
};

/// Fetches `file` to dir/path by way of dir/path.part, beside which dir/path.part.json says whose bytes those are. A
/// .part of the same content is gone on with; a server that cannot, or whose file has changed, sends it from the
/// beginning. Errors: Error(corrupt) for a wrong hash or size (the .part is deleted), Error(io) for a full disk (says
/// bytes needed and free; the .part stays) or a network that stays broken (the .part stays), Error(cancelled) (the
/// .part stays), what throw_status says.
void download(const DownloadContext& context, const RemoteFile& file);

/// Whether `path` is a regular file with the listed size and hash. Reads all of it.
bool matches(const std::filesystem::path& path, const RemoteFile& file, const std::function<bool()>& stopped);
/// The bytes that a download of `file` to `dir` would not fetch again.
std::uint64_t bytes_kept(const std::filesystem::path& dir, const RemoteFile& file);

}  // namespace lily::hub
