#include "base/digest.h"

#include <openssl/evp.h>

#include <array>

#include "base/error.h"

namespace lily {

struct Digest::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

namespace {
void require(int ok) {
  if (ok != 1) throw Error(ErrorCode::internal, "the cryptographic library refused to hash");
}
}  // namespace

Digest::Digest(Kind kind, std::uint64_t size) : context_(std::make_unique<Context>()) {
  require(context_->evp != nullptr ? 1 : 0);
  require(EVP_DigestInit_ex(context_->evp, kind == Kind::sha256 ? EVP_sha256() : EVP_sha1(), nullptr));
  if (kind == Kind::git_blob) {
    const std::string head = "blob " + std::to_string(size);
    update({head.c_str(), head.size() + 1});  // with its zero byte
  }
}

Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::update(std::string_view bytes) {
  require(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()));
}

std::string Digest::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> raw{};
  unsigned int length = 0;
  require(EVP_DigestFinal_ex(context_->evp, raw.data(), &length));
  std::string hex;
  for (unsigned int i = 0; i < length; ++i) {
    hex += "0123456789abcdef"[raw[i] >> 4];
    hex += "0123456789abcdef"[raw[i] & 15];
  }
  return hex;
}

}  // namespace lily
