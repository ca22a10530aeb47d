#include "text/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "text/byte_alphabet.h"
#include "text/nfc.h"
#include "text/utf8.h"

namespace lily {
namespace {

constexpr const char* kFile = "tokenizer.json";
constexpr int32_t kMaxId = 1 << 24;  // a file that names larger ids would only cost memory

[[noreturn]] void corrupt(const std::string& what) {
  throw Error(ErrorCode::corrupt, std::string(kFile) + ": " + what);
}

void check_id(int32_t id, const std::string& content) {
  if (id >= kMaxId) corrupt("token '" + content + "' has id " + std::to_string(id) + ", expected less than 2^24");
}

using TextToId = std::unordered_map<std::string_view, int32_t>;  // a token as the file writes it

int32_t id_in(const TextToId& ids, const std::string& token, size_t merge) {
  const auto it = ids.find(token);
  if (it == ids.end()) corrupt("model.merges[" + std::to_string(merge) + "]: '" + token + "' is not in model.vocab");
  return it->second;
}

std::vector<Bpe::Merge> merge_ids(const TokenizerFile& file, const TextToId& ids) {
  std::vector<Bpe::Merge> merges;
  merges.reserve(file.merges.size());
  for (size_t i = 0; i < file.merges.size(); ++i) {
    const auto& [left, right] = file.merges[i];
    merges.push_back({id_in(ids, left, i), id_in(ids, right, i), id_in(ids, left + right, i)});
  }
  return merges;
}

std::array<int32_t, 256> byte_ids(const TextToId& ids) {
  std::array<int32_t, 256> result{};
  const auto alphabet = byte_alphabet();
  for (int b = 0; b < 256; ++b) {
    std::string character;
    append_utf8(character, alphabet[b]);
    const auto it = ids.find(character);
    if (it == ids.end()) corrupt("model.vocab: no token for byte " + std::to_string(b) + " ('" + character + "')");
    result[b] = it->second;
  }
  return result;
}

}  // namespace

// One call of encode: the buffers it reuses and the ids so far.
struct Tokenizer::Encoder {
  const Tokenizer& tokenizer;
  ControlTokens control;
  std::vector<int32_t> ids;
  Bpe::Scratch scratch;
  std::vector<std::string_view> pieces, finer;

  Encoder(const Tokenizer& t, ControlTokens c) : tokenizer(t), control(c) {}

  void word(std::string_view bytes) {
    if (tokenizer.ignore_merges_) {
      const auto it = tokenizer.by_bytes_.find(bytes);
      if (it != tokenizer.by_bytes_.end()) {
        ids.push_back(it->second);
        return;
      }
    }
    tokenizer.bpe_.encode(bytes, scratch, ids);
  }

  // Normalised text without control tokens.
  void words(std::string_view text) {
    if (text.empty()) return;
    pieces.assign(1, text);
    for (const RegexSplitter& splitter : tokenizer.splitters_) {
      finer.clear();
      for (const std::string_view piece : pieces) splitter.split(piece, finer);
      std::swap(pieces, finer);
    }
    for (const std::string_view piece : pieces) word(piece);
  }

  // Valid UTF-8 without raw control tokens. `mask` may be empty.
  void normalise(std::string_view text, std::string_view mask) {
    std::string normal, normal_mask(mask);
    if (tokenizer.nfc_) {
      normal = nfc(text, mask.empty() ? nullptr : &normal_mask);
      text = normal;
    }
    if (control == ControlTokens::as_text || tokenizer.normalized_added_.empty()) return words(text);
    size_t done = 0;
    for (const auto& match : tokenizer.normalized_added_.find(text, normal_mask)) {
      words(text.substr(done, match.begin - done));
      ids.push_back(match.id);
      done = match.end;
    }
    words(text.substr(done));
  }

  // Any bytes without raw control tokens.
  void bytes(std::string_view text, std::string_view mask) {
    size_t begin = 0, at = 0;
    const auto flush_valid = [&](size_t end) {
      if (end > begin)
        normalise(text.substr(begin, end - begin), mask.empty() ? mask : mask.substr(begin, end - begin));
    };
    while (at < text.size()) {
      const Utf8Step step = utf8_step(text.substr(at));
      if (step.kind == Utf8Kind::valid) {
        at += step.length;
        continue;
      }
      flush_valid(at);
      begin = at;
      while (at < text.size()) {
        const Utf8Step bad = utf8_step(text.substr(at));
        if (bad.kind == Utf8Kind::valid) break;
        at += bad.length;
      }
      tokenizer.bpe_.encode(text.substr(begin, at - begin), scratch, ids);
      begin = at;
    }
    flush_valid(at);
  }
};

Tokenizer Tokenizer::load(const std::filesystem::path& dir) {
  TokenizerFile file = read_tokenizer_file(dir);
  Tokenizer tokenizer;
  tokenizer.build_vocab(file);
  tokenizer.nfc_ = file.nfc;
  tokenizer.ignore_merges_ = file.ignore_merges;
  for (auto& [regex, where] : file.splits) tokenizer.splitters_.emplace_back(regex, where);
  for (AddedToken& token : file.added) {
    if (token.normalized && file.nfc) token.content = nfc(token.content);
    (token.normalized ? tokenizer.normalized_added_ : tokenizer.raw_added_).add(token);
  }
  tokenizer.build_end_tokens(dir);
  return tokenizer;
}

void Tokenizer::build_vocab(TokenizerFile& file) {
  TextToId ids;
  ids.reserve(2 * file.vocab.size());
  int32_t largest = 0;
  for (const auto& [text, id] : file.vocab) {
    check_id(id, text);
    if (!ids.emplace(text, id).second) corrupt("model.vocab: token '" + text + "' is there twice");
    largest = std::max(largest, id);
  }
  for (const AddedToken& token : file.added) {
    check_id(token.id, token.content);
    largest = std::max(largest, token.id);
  }
  tokens_.resize(largest + 1);
  for (const auto& [text, id] : file.vocab) {
    if (tokens_[id].exists)
      corrupt("model.vocab: token '" + text + "' has the id of another token, " + std::to_string(id));
    tokens_[id] = {from_byte_alphabet(text), true};
  }
  bpe_ = Bpe(byte_ids(ids), merge_ids(file, ids));
  for (const AddedToken& token : file.added) {
    const auto same = ids.find(token.content);
    Token& slot = tokens_[token.id];
    if (same != ids.end() ? same->second != token.id : slot.exists) {
      corrupt("added_tokens: '" + token.content + "' has id " + std::to_string(token.id) +
              ", which contradicts model.vocab");
    }
    slot = {token.content, true, true, token.special};
    if (!by_added_.emplace(token.content, token.id).second)
      corrupt("added_tokens: '" + token.content + "' is there twice");
  }
  by_bytes_.reserve(2 * file.vocab.size());
  for (const auto& entry : file.vocab) {
    if (!tokens_[entry.second].control) by_bytes_.emplace(tokens_[entry.second].bytes, entry.second);
  }
}

void Tokenizer::build_end_tokens(const std::filesystem::path& dir) {
  const EndTokenNames names = read_end_tokens(dir);
  end_tokens_ = names.ids;
  if (names.text) {
    const auto id = id_of(*names.text);
    if (!id) {
      throw Error(ErrorCode::corrupt, (dir / "tokenizer_config.json").string() + ": eos_token '" + *names.text +
                                          "' is not in tokenizer.json");
    }
    end_tokens_.push_back(*id);
  }
  const auto im_end = by_added_.find("<|im_end|>");
  if (im_end != by_added_.end()) end_tokens_.push_back(im_end->second);
  std::sort(end_tokens_.begin(), end_tokens_.end());
  end_tokens_.erase(std::unique(end_tokens_.begin(), end_tokens_.end()), end_tokens_.end());
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, ControlTokens control) const {
  Encoder encoder(*this, control);
  size_t done = 0;
  if (control == ControlTokens::parse) {
    for (const auto& match : raw_added_.find(text, {})) {
      encoder.bytes(text.substr(done, match.begin - done), {});
      encoder.ids.push_back(match.id);
      done = match.end;
    }
  }
  encoder.bytes(text.substr(done), {});
  return std::move(encoder.ids);
}

std::vector<int32_t> Tokenizer::encode(std::span<const TextSegment> segments,
                                       std::vector<PromptBoundary>* boundaries) const {
  std::string text, mask;
  std::vector<std::pair<size_t, Boundary>> places;
  for (const TextSegment& segment : segments) {
    if (segment.at_start != Boundary::none) places.emplace_back(text.size(), segment.at_start);
    text += segment.text;
    mask.append(segment.text.size(), segment.is_content ? 1 : 0);
  }
  Encoder encoder(*this, ControlTokens::parse);
  size_t place = 0;
  const auto mark = [&](size_t position) {  // `position` lies between two tokens
    while (place < places.size() && places[place].first <= position) {
      if (boundaries && places[place].first == position)
        boundaries->push_back({places[place].second, encoder.ids.size()});
      ++place;
    }
  };
  if (boundaries) boundaries->clear();
  size_t done = 0;
  mark(0);
  const auto matches = raw_added_.find(text, mask);
  for (const auto& match : matches) {
    encoder.bytes(std::string_view(text).substr(done, match.begin - done),
                  std::string_view(mask).substr(done, match.begin - done));
    mark(match.begin);
    encoder.ids.push_back(match.id);
    mark(match.end);
    done = match.end;
  }
  encoder.bytes(std::string_view(text).substr(done), std::string_view(mask).substr(done));
  mark(text.size());
  return std::move(encoder.ids);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, SpecialTokens special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (special == SpecialTokens::show || !is_special(id)) bytes += token_bytes(id);
  }
  return bytes;
}

std::string Tokenizer::decode_text(std::span<const int32_t> ids, SpecialTokens special) const {
  std::string text;
  append_utf8_lossy(text, decode(ids, special));
  return text;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  return id >= 0 && id < vocab_size() ? std::string_view(tokens_[id].bytes) : std::string_view();
}

bool Tokenizer::is_control(int32_t id) const {
  return id >= 0 && id < vocab_size() && tokens_[id].control;
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && tokens_[id].special;
}

std::optional<int32_t> Tokenizer::id_of(std::string_view text) const {
  const auto added = by_added_.find(std::string(text));
  if (added != by_added_.end()) return added->second;
  const auto it = by_bytes_.find(text);
  if (it != by_bytes_.end()) return it->second;
  return std::nullopt;
}

}  // namespace lily
