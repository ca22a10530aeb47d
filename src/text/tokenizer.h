// The tokenizer: text to token ids and back, as the checkpoint's tokenizer.json says.
//
// Byte-level BPE: NFC, added ("control") tokens first, a regular expression that cuts words, merges inside a word.
// Every byte has a token, so every text can be encoded. Bytes that are not UTF-8 are kept: a run of them stands
// between words and becomes the tokens of its bytes, so decoding gives the same bytes back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/regex_splitter.h"
#include "text/segment.h"
#include "text/tokenizer_file.h"

namespace lily {

enum class ControlTokens {
  parse,    // an added token spelled in the text becomes that token
  as_text,  // it becomes the tokens of its characters
};

enum class SpecialTokens {
  show,  // as their text
  skip,  // tokens marked `special` in added_tokens are left out
};

/// A boundary of a rendered prompt, as a number of tokens.
struct PromptBoundary {
  Boundary kind;
  size_t n_ids;  // ids before the boundary
};

/// Immutable once loaded: any number of threads may use one.
class Tokenizer {
 public:
  /// Reads tokenizer.json and, where they exist, tokenizer_config.json and generation_config.json in `dir`.
  static Tokenizer load(const std::filesystem::path& dir);

  std::vector<int32_t> encode(std::string_view text, ControlTokens control) const;

  /// The ids that the whole text would get with control tokens parsed, save that none is found in, or reaches into,
  /// a segment of content. Words may cross the border of two segments. `boundaries`, where given, receives those
  /// boundaries that fall between two tokens at a control token or at either end of the prompt.
  std::vector<int32_t> encode(std::span<const TextSegment> segments,
                              std::vector<PromptBoundary>* boundaries = nullptr) const;

  /// The bytes of the ids, which need not be UTF-8. An id without a token has none.
  std::string decode(std::span<const int32_t> ids, SpecialTokens special = SpecialTokens::show) const;

  /// As `decode`, with what is not UTF-8 replaced by U+FFFD.
  std::string decode_text(std::span<const int32_t> ids, SpecialTokens special = SpecialTokens::show) const;

  /// The bytes of one token; empty when there is no such token.
  std::string_view token_bytes(int32_t id) const;
  bool is_control(int32_t id) const;  // an entry of added_tokens
  bool is_special(int32_t id) const;  // one marked `special`

  /// The id of an added token's text or, failing that, of the token that has exactly these bytes.
  std::optional<int32_t> id_of(std::string_view text) const;

  /// One more than the largest id. The model's vocabulary may be larger (padding).
  int32_t vocab_size() const { return static_cast<int32_t>(tokens_.size()); }

  /// Ids that end an answer: eos_token_id of generation_config.json, eos_token of tokenizer_config.json, `<|im_end|>`.
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }

 private:
  struct Encoder;
  struct Token {
    std::string bytes;
    bool exists = false, control = false, special = false;
  };

  Tokenizer() = default;
  void build_vocab(TokenizerFile& file);
  void build_end_tokens(const std::filesystem::path& dir);

  std::vector<Token> tokens_;                               // by id
  std::unordered_map<std::string_view, int32_t> by_bytes_;  // views into tokens_; ordinary tokens
  std::unordered_map<std::string, int32_t> by_added_;
  Bpe bpe_;
  std::vector<RegexSplitter> splitters_;
  AddedTokenMatcher raw_added_, normalized_added_;
  bool nfc_ = false, ignore_merges_ = false;
  std::vector<int32_t> end_tokens_;
};

}  // namespace lily
