#include "engine/cache_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/unique_id.h"

namespace lily {
namespace fs = std::filesystem;
namespace {

constexpr char kMagic[8] = {'L', 'I', 'L', 'Y', 'S', 'N', 'P', '1'};
constexpr std::size_t kDigest = 64;  // hexadecimal
constexpr std::size_t kNameBytes = 3 + kUniqueDigits;  // of a file: "kv-" or "st-" and hexadecimal digits

struct Head {
  char magic[8];
  std::int64_t ids, blocks, recurrent, conv, logits;
};

std::string_view text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& v) {
  return std::as_bytes(std::span(v));
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

/// The sizes at a snapshot's beginning; none: they are not what this model's states have, or not what the file's length says.
std::optional<Head> read_sizes(Reader& in, const StateLayout& layout, std::int64_t vocab) {
  Head head{};
  if (!in.read(std::as_writable_bytes(std::span(&head, 1)))) return std::nullopt;
  const bool sound = std::memcmp(head.magic, kMagic, sizeof kMagic) == 0 && head.ids > 0 && head.ids < (std::int64_t(1) << 32) &&
                     head.blocks == kv_blocks(head.ids) && head.recurrent == layout.gdn_layers * layout.recurrent_floats &&
                     head.conv == layout.gdn_layers * layout.conv_floats && (head.logits == 0 || head.logits == vocab) &&
                     in.size() == std::int64_t(sizeof head) + 4 * (head.ids + head.recurrent + head.conv + head.logits) +
                                      head.blocks * std::int64_t(kNameBytes) + std::int64_t(kDigest);
  return sound ? std::optional(head) : std::nullopt;
}

}  // namespace

std::string state_key(const std::vector<fs::path>& files, const StateLayout& layout, const std::string& arithmetic) {
  Digest hash(Digest::Kind::sha256, 0);
  const auto add = [&](const std::string& text) { hash.update(text); };
  add(fmt::format("{} {} {} {} {} {} {} {}\n", std::string(kMagic, 8), int(layout.kv_type), layout.kv_block_bytes, layout.recurrent_floats, layout.conv_floats,
                  layout.gdn_layers, layout.attention_layers, arithmetic));
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
  const std::optional<Head> head = read_sizes(in, layout_, vocab_);
  std::vector<char> names;
  if (!head || !in.read(s.ids, head->ids) || !in.read(names, head->blocks * std::int64_t(kNameBytes))) return false;
  for (std::int64_t i = 0; i < head->blocks; ++i) s.blocks.emplace_back(names.data() + i * std::int64_t(kNameBytes), kNameBytes);
  s.name = name;
  s.has_logits = head->logits > 0;
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
    const std::optional<Head> head = read_sizes(in, layout_, vocab_);
    auto s = std::make_shared<Snapshot>();
    std::vector<char> names;
    bool sound = head && in.read(s->ids, head->ids) && in.read(names, head->blocks * std::int64_t(kNameBytes)) &&
                 in.read(s->recurrent.recurrent, head->recurrent) && in.read(s->recurrent.conv, head->conv) &&
                 in.read(s->logits, head->logits) && in.digest_is_right() && s->ids == best->ids;
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

std::int64_t CacheStore::write(const std::string& name, const std::vector<std::span<const std::byte>>& parts) {
  OutputFile file(dir_ / name, OutputUse::cache);
  Digest hash(Digest::Kind::sha256, 0);
  std::uint64_t at = 0;
  for (const auto& part : parts) {
    hash.update(text_of(part));
    file.write_at(at, part.data(), part.size());
    at += part.size();
  }
  file.write_at(at, hash.finish().data(), kDigest);
  file.finish();
  return std::int64_t(at + kDigest);
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
  Stored s{.name = unique_id("st-"), .ids = snapshot->ids, .blocks = {}, .has_logits = !snapshot->logits.empty(), .bytes = 0};
  try {
    std::erase_if(known_, [](const auto& k) { return k.second.block.expired(); });
    for (const auto& block : snapshot->blocks) {
      auto known = known_.find(block.get());
      if (known == known_.end()) {
        const std::string name = unique_id("kv-");
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
    s.bytes = write(s.name, {std::as_bytes(std::span(&head, 1)), bytes_of(s.ids), bytes_of(names), bytes_of(snapshot->recurrent.recurrent),
                             bytes_of(snapshot->recurrent.conv), bytes_of(snapshot->logits)});
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
