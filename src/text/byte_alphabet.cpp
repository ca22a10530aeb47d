#include "text/byte_alphabet.h"

#include "text/utf8.h"

namespace lily {
namespace {

constexpr uint32_t kAlphabetEnd = 0x144;  // 256 + the 68 bytes that are not printable

std::array<int16_t, kAlphabetEnd> inverse_alphabet() {
  std::array<int16_t, kAlphabetEnd> byte_of;
  byte_of.fill(-1);
  const auto alphabet = byte_alphabet();
  for (int b = 0; b < 256; ++b) byte_of[alphabet[b]] = static_cast<int16_t>(b);
  return byte_of;
}

}  // namespace

std::array<uint32_t, 256> byte_alphabet() {
  std::array<uint32_t, 256> alphabet{};
  uint32_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    alphabet[b] = printable ? b : next++;
  }
  return alphabet;
}

std::string from_byte_alphabet(std::string_view token) {
  static const auto byte_of = inverse_alphabet();
  std::string bytes;
  for (std::string_view rest = token; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    if (step.kind != Utf8Kind::valid || step.code_point >= kAlphabetEnd || byte_of[step.code_point] < 0) {
      return std::string(token);
    }
    bytes += static_cast<char>(byte_of[step.code_point]);
    rest.remove_prefix(step.length);
  }
  return bytes;
}

}  // namespace lily
