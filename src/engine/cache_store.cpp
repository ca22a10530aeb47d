#include "engine/cache_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"

namespace lily {
namespace fs = std::filesystem;
namespace {

constexpr char kMagic[8] = {'L', 'I', 'L', 'Y', 'S', 'N', 'P', '1'};
constexpr std::size_t kDigest = 64;  // hexadecimal
constexpr std::size_t kNameBytes = 19;  // of a block's name: "kv-" and hexadecimal digits

struct Head {
  char magic[8];
  std::int64_t ids, blocks, recurrent, conv, logits;
};

std::string_view text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& v) {
  return std::as_bytes(std::span(v));
}

std::string random_name(const char* prefix) {
  static std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{}{:016x}", prefix, random());
}

/// A file that is read from its beginning. Every failure is a miss, so there is one answer: false.
class Reader {
 public:
  explicit Reader(const fs::path& path) : file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat s {};
    if (file_ >= 0 && fstat(file_, &s) == 0) size_ = s.st_size;
  }
  ~Reader() {
    if (file_ >= 0) close(file_);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  std::int64_t size() const { return size_; }
  bool read(std::span<std::byte> out) {
    for (std::size_t done = 0; done < out.size();) {
      const ssize_t n = ::read(file_, out.data() + done, out.size() - done);
      if (n <= 0) return false;
      done += std::size_t(n);
    }
    hash_.update(text_of(out));
    return true;
  }
  template <class T>
  bool read(std::vector<T>& out, std::int64_t n) {
    out.resize(std::size_t(n));
    return read(std::as_writable_bytes(std::span(out)));
  }
  bool digest_is_right() {
    const std::string expected = hash_.finish();
    std::string found(kDigest, '\0');
    return ::read(file_, found.data(), kDigest) == ssize_t(kDigest) && found == expected;
  }

 private:
  int file_;
  std::int64_t size_ = -1;
  Digest hash_{Digest::Kind::sha256, 0};
};

}  // namespace

std::string state_key(const std::vector<fs::path>& files, const StateLayout& layout, bool exact) {
  Digest hash(Digest::Kind::sha256, 0);
  const auto add = [&](const std::string& text) { hash.update(text); };
  add(fmt::format("{} {} {} {} {} {} {} {}\n", std::string(kMagic, 8), int(layout.kv_type), layout.kv_block_bytes, layout.recurrent_floats, layout.conv_floats,
                  layout.gdn_layers, layout.attention_layers, exact));
  constexpr std::int64_t kSamples = 64, kSampleBytes = 4096;
  for (const fs::path& path : files) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat s {};
    if (file < 0 || fstat(file, &s) != 0) throw Error(ErrorCode::io, fmt::format("{}: {}", path.string(), std::strerror(errno)));
    add(fmt::format("{} {}\n", path.filename().string(), s.st_size));
    std::vector<std::byte> sample(kSampleBytes);
    for (std::int64_t i = 0; i < kSamples; ++i) {
      const ssize_t n = pread(file, sample.data(), sample.size(), s.st_size / kSamples * i);
      if (n > 0) hash.update(text_of(std::span(sample).first(std::size_t(n))));
    }
    close(file);
  }
  return hash.finish().substr(0, 32);
}

CacheStore::CacheStore(const fs::path& dir, const std::string& key, const StateLayout& layout, std::int64_t vocab, std::int64_t limit)
    : dir_(dir / key), layout_(layout), vocab_(vocab), limit_(limit) {
  std::error_code e;
  fs::create_directories(dir_, e);
  if (!e) fs::permissions(dir_, fs::perms::owner_all, e);
  if (e || access(dir_.c_str(), W_OK) != 0)
    throw Error(ErrorCode::io, fmt::format("--cache-dir {}: {}", dir.string(), e ? e.message() : std::strerror(errno)));
  scan();
}

void CacheStore::scan() {
  std::vector<std::pair<fs::file_time_type, Stored>> found;
  std::set<std::string> blocks;
  std::error_code e;
  for (const fs::directory_entry& file : fs::directory_iterator(dir_, e)) {
    const std::string name = file.path().filename().string();
    Stored s;
    if (name.starts_with("kv-") && name.size() == kNameBytes) {
      blocks.insert(name);
    } else if (name.starts_with("st-") && read_head(name, s)) {
      std::error_code ignored;
      found.emplace_back(file.last_write_time(ignored), std::move(s));
    } else {
      fs::remove(file.path(), e);  // half written, or not ours
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (auto& [time, s] : found) {
    const bool whole = std::all_of(s.blocks.begin(), s.blocks.end(), [&](const std::string& b) { return blocks.count(b) > 0; });
    if (!whole) {
      fs::remove(dir_ / s.name, e);
      continue;
    }
    for (const std::string& b : s.blocks) ++block_uses_[b];
    own_bytes_ += s.bytes;
    entries_.push_back(std::move(s));
  }
  for (const std::string& b : blocks)
    if (!block_uses_.count(b)) fs::remove(dir_ / b, e);
}

/// Name, ids and blocks of a snapshot's file; the rest is looked at when it is wanted.
bool CacheStore::read_head(const std::string& name, Stored& s) const {
  Reader in(dir_ / name);
  Head head{};
  if (!in.read(std::as_writable_bytes(std::span(&head, 1)))) return false;
  const std::int64_t blocks = (head.ids + kKvBlockTokens - 1) / kKvBlockTokens;
  const bool sound = std::memcmp(head.magic, kMagic, sizeof kMagic) == 0 && head.ids > 0 && head.ids < (std::int64_t(1) << 32) && head.blocks == blocks &&
                     head.recurrent == layout_.gdn_layers * layout_.recurrent_floats && head.conv == layout_.gdn_layers * layout_.conv_floats &&
                     (head.logits == 0 || head.logits == vocab_) &&
                     in.size() == std::int64_t(sizeof head) + 4 * (head.ids + head.recurrent + head.conv + head.logits) +
                                      head.blocks * std::int64_t(kNameBytes) + std::int64_t(kDigest);
  if (!sound) return false;
  std::vector<char> names;
  if (!in.read(s.ids, head.ids) || !in.read(names, head.blocks * std::int64_t(kNameBytes))) return false;
  for (std::int64_t i = 0; i < head.blocks; ++i) s.blocks.emplace_back(names.data() + i * std::int64_t(kNameBytes), kNameBytes);
  s.name = name;
  s.has_logits = head.logits > 0;
  s.bytes = in.size();
  return true;
}

std::shared_ptr<KvBlock> CacheStore::read_block(const std::string& name) {
  for (const auto& [block, known] : known_)  // another snapshot's, in memory already
    if (known.name == name)
      if (auto alive = known.block.lock()) return alive;
  Reader in(dir_ / name);
  if (in.size() != layout_.kv_block_bytes + std::int64_t(kDigest)) return nullptr;
  auto block = std::make_shared<KvBlock>(layout_.kv_block_bytes);
  if (!in.read({block->data(), std::size_t(layout_.kv_block_bytes)}) || !in.digest_is_right()) return nullptr;
  known_[block.get()] = {block, name};
  return block;
}

std::shared_ptr<const Snapshot> CacheStore::load(std::span<const std::int32_t> ids, std::int64_t known) {
  const std::lock_guard lock(mutex_);
  while (true) {
    auto best = entries_.end();
    for (auto e = entries_.begin(); e != entries_.end(); ++e) {
      const std::size_t n = e->ids.size();
      if (n == ids.size() && !e->has_logits) continue;  // what comes next is not in it
      if (std::int64_t(n) <= known || n > ids.size() || (best != entries_.end() && n <= best->ids.size())) continue;
      if (std::equal(e->ids.begin(), e->ids.end(), ids.begin())) best = e;
    }
    if (best == entries_.end()) return nullptr;
    Reader in(dir_ / best->name);
    Head head{};
    auto s = std::make_shared<Snapshot>();
    std::vector<char> names;
    bool sound = in.read(std::as_writable_bytes(std::span(&head, 1))) && in.read(s->ids, head.ids) &&
                 in.read(names, head.blocks * std::int64_t(kNameBytes)) && in.read(s->recurrent.recurrent, head.recurrent) &&
                 in.read(s->recurrent.conv, head.conv) && in.read(s->logits, head.logits) && in.digest_is_right() && s->ids == best->ids;
    for (std::size_t i = 0; sound && i < best->blocks.size(); ++i) {
      s->blocks.push_back(read_block(best->blocks[i]));
      sound = s->blocks.back() != nullptr;
    }
    if (!sound) {
      log_warning(fmt::format("--cache-dir: {} is damaged; it is removed", (dir_ / best->name).string()));
      remove(best);
      continue;
    }
    entries_.splice(entries_.begin(), entries_, best);
    utimensat(AT_FDCWD, (dir_ / best->name).c_str(), nullptr, 0);  // used now: the order in which they go survives, too
    return s;
  }
}

void CacheStore::write(const std::string& name, const std::vector<std::span<const std::byte>>& parts) {
  const fs::path path = dir_ / name, temporary = dir_ / ("tmp-" + name);
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) throw Error(ErrorCode::io, fmt::format("{}: {}", temporary.string(), std::strerror(errno)));
  Digest hash(Digest::Kind::sha256, 0);
  bool good = true;
  const auto put = [&](std::span<const std::byte> bytes) {
    for (std::size_t done = 0; good && done < bytes.size();) {
      const ssize_t n = ::write(file, bytes.data() + done, bytes.size() - done);
      good = n > 0;
      if (good) done += std::size_t(n);
    }
  };
  for (const auto& part : parts) {
    hash.update(text_of(part));
    put(part);
  }
  const std::string digest = hash.finish();
  put(std::as_bytes(std::span(digest)));
  const int why = errno;
  good = close(file) == 0 && good;
  if (good) good = rename(temporary.c_str(), path.c_str()) == 0;
  if (good) return;
  unlink(temporary.c_str());
  throw Error(ErrorCode::io, fmt::format("{}: {}", path.string(), std::strerror(why)));
}

std::int64_t CacheStore::bytes() const {
  return own_bytes_ + std::int64_t(block_uses_.size()) * (layout_.kv_block_bytes + std::int64_t(kDigest));
}

void CacheStore::remove(Entries::iterator entry) {
  std::error_code ignored;
  fs::remove(dir_ / entry->name, ignored);
  own_bytes_ -= entry->bytes;
  for (const std::string& b : entry->blocks) {
    if (--block_uses_[b] > 0) continue;
    block_uses_.erase(b);
    fs::remove(dir_ / b, ignored);
    std::erase_if(known_, [&](const auto& k) { return k.second.name == b; });
  }
  entries_.erase(entry);
}

void CacheStore::keep(const std::shared_ptr<const Snapshot>& snapshot) {
  const std::lock_guard lock(mutex_);
  for (const Stored& e : entries_)
    if (e.ids == snapshot->ids) return;
  Stored s{.name = random_name("st-"), .ids = snapshot->ids, .blocks = {}, .has_logits = !snapshot->logits.empty(), .bytes = 0};
  try {
    std::erase_if(known_, [](const auto& k) { return k.second.block.expired(); });
    for (const auto& block : snapshot->blocks) {
      auto known = known_.find(block.get());
      if (known == known_.end()) {
        const std::string name = random_name("kv-");
        write(name, {{block->data(), std::size_t(block->bytes())}});
        known = known_.emplace(block.get(), Known{block, name}).first;
      }
      s.blocks.push_back(known->second.name);
    }
    Head head{{}, std::int64_t(s.ids.size()), std::int64_t(s.blocks.size()), std::int64_t(snapshot->recurrent.recurrent.size()),
              std::int64_t(snapshot->recurrent.conv.size()), std::int64_t(snapshot->logits.size())};
    std::memcpy(head.magic, kMagic, sizeof kMagic);
    std::vector<char> names;
    for (const std::string& b : s.blocks) names.insert(names.end(), b.begin(), b.end());
    write(s.name, {std::as_bytes(std::span(&head, 1)), bytes_of(s.ids), bytes_of(names), bytes_of(snapshot->recurrent.recurrent),
                   bytes_of(snapshot->recurrent.conv), bytes_of(snapshot->logits)});
    s.bytes = std::int64_t(sizeof head + s.ids.size() * 4 + names.size()) + snapshot->own_bytes() - std::int64_t(s.ids.size()) * 4 + std::int64_t(kDigest);
  } catch (const Error& e) {
    if (!told_) log_warning(fmt::format("--cache-dir: {}; conversations are not kept", e.what()));
    told_ = true;
    // Blocks that were written and belong to nobody go with the next start's scan.
    return;
  }
  for (const std::string& b : s.blocks) ++block_uses_[b];
  own_bytes_ += s.bytes;
  entries_.push_front(std::move(s));
  while (bytes() > limit_ && entries_.size() > 1) remove(std::prev(entries_.end()));
}

CacheStoreUse CacheStore::use() const {
  const std::lock_guard lock(mutex_);
  return {int(entries_.size()), bytes()};
}

}  // namespace lily
