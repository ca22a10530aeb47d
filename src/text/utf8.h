// UTF-8 on bytes: one step of a decoder, whitespace sets, and a decoder for text that arrives in pieces.
//
// Ill-formed input is treated as the Unicode standard recommends (and as Python's and Rust's lossy decoders do):
// each maximal part that could have begun a character becomes one U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lily {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Kind {
  valid,       // a whole character
  invalid,     // bytes that begin no character
  incomplete,  // a proper prefix of a character, cut by the end of the input
};

struct Utf8Step {
  Utf8Kind kind;
  uint32_t code_point;  // 0 unless valid
  int length;           // bytes this step covers, at least 1
};

/// Decodes the first character of `bytes`, which must not be empty.
Utf8Step utf8_step(std::string_view bytes);

/// Appends the UTF-8 form of a code point (at most U+10FFFF).
void append_utf8(std::string& out, uint32_t code_point);

/// Characters of UTF-8 in `text`.
std::size_t utf8_length(std::string_view text);

/// Appends `bytes` with everything that is not UTF-8 replaced by U+FFFD.
void append_utf8_lossy(std::string& out, std::string_view bytes);

/// The Unicode property White_Space.
bool is_white_space(uint32_t code_point);

/// Python's str.strip(): White_Space and the separators U+001C…U+001F, on both sides.
std::string_view python_strip(std::string_view text);

/// Turns bytes that arrive in any pieces into UTF-8. What `push` returns is always whole characters.
class Utf8Stream {
 public:
  /// The text that is certain after these bytes; at most three bytes of an unfinished character are kept back.
  std::string push(std::string_view bytes);
  /// Ends the stream: one U+FFFD when an unfinished character was kept back, else nothing.
  std::string finish();
  /// Bytes kept back now.
  std::string_view pending() const { return pending_; }

 private:
  std::string pending_;
};

}  // namespace lily
