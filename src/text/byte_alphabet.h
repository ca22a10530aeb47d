// The byte-level alphabet: a printable character for each of the 256 bytes, as tokenizer.json writes its tokens.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lily {

/// The character of each byte: printable Latin-1 stands for itself, the others are U+0100 and up, in order.
std::array<uint32_t, 256> byte_alphabet();

/// The bytes a token's text stands for. A text with a character outside the alphabet stands for itself.
std::string from_byte_alphabet(std::string_view token);

}  // namespace lily
