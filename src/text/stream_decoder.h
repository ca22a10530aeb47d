// Token ids in, UTF-8 text out, as the ids come.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace lily {

/// All that `push` and `finish` returned, joined, is Tokenizer::decode_text of all the ids, and every part is whole
/// characters. At most three bytes wait for the next token. The tokenizer must outlive the decoder.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, SpecialTokens special = SpecialTokens::show)
      : tokenizer_(&tokenizer), special_(special) {}

  /// The text that is certain after this token. Any id is taken; one without a token adds nothing.
  std::string push(int32_t id);
  /// Ends the text: U+FFFD once when a character was left unfinished, else nothing.
  std::string finish() { return utf8_.finish(); }

 private:
  const Tokenizer* tokenizer_;
  SpecialTokens special_;
  Utf8Stream utf8_;
};

}  // namespace lily
