// Hashes of content: SHA-256, and the one by which git (and so a hub) names a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lily {

/// A running hash. `git_blob`: SHA-1 over "blob <size>\0" and the content, which is what a hub lists for small files.
class Digest {
 public:
  enum class Kind { sha256, git_blob };
  /// `size`: of the whole content in bytes (git_blob hashes it first).
  Digest(Kind kind, std::uint64_t size);
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void update(std::string_view bytes);
  /// Lower-case hexadecimal. Ends the hash: only the destructor may follow.
  std::string finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace lily
