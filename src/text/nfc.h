// Unicode normalisation form C, in time linear in the text.
#pragma once

#include <string>
#include <string_view>

namespace lily {

/// NFC of `text`, which must be valid UTF-8.
///
/// `mask`, where given, holds one byte a byte of `text` and is carried along: where normalising changed a stretch,
/// the whole stretch gets the largest mask byte it had. A stretch never reaches over an ASCII character that no
/// combining character follows, so ASCII markup keeps its own mask.
std::string nfc(std::string_view text, std::string* mask = nullptr);

}  // namespace lily
