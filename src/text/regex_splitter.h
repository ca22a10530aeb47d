// The pre-tokenizer's regular expression, run by PCRE2.
//
// tokenizer.json is written for the Oniguruma library. Where the two dialects agree the pattern is used as it is;
// `\s` and `\S` are spelled out, since their sets differ by one character; a construct that would silently mean
// something else is refused by name when the file is loaded.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lily {

class RegexSplitter {
 public:
  /// `where` names the field for messages, e.g. "tokenizer.json: pre_tokenizer.pretokenizers[0].pattern.Regex".
  RegexSplitter(std::string_view pattern, std::string where);
  ~RegexSplitter();
  RegexSplitter(RegexSplitter&&) noexcept;
  RegexSplitter& operator=(RegexSplitter&&) noexcept;

  /// Appends the matches in `text` (valid UTF-8) and the stretches between them, in order: together the whole text.
  /// Throws when the pattern needs more steps than a linear scan of the text could (a bound of PCRE2's).
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
  std::string where_;
};

/// The pattern in PCRE2's dialect (see above). Throws `unsupported` naming `where`.
std::string translate_oniguruma(std::string_view pattern, const std::string& where);

}  // namespace lily
