#include "text/utf8.h"

#include <algorithm>

namespace lily {
namespace {

uint8_t byte_at(std::string_view s, size_t i) {
  return static_cast<uint8_t>(s[i]);
}

// The allowed range of the second byte (Unicode, table 3-7): it shuts out overlong forms, surrogates and > U+10FFFF.
struct LeadInfo {
  int length;
  uint8_t second_low, second_high;
};

LeadInfo lead_info(uint8_t lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

bool is_python_space(uint32_t c) {
  return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}

// Length of the character that ends at the end of `text`, 1 when the bytes there are not UTF-8.
size_t last_character_length(std::string_view text) {
  for (size_t n = 1; n <= 4 && n <= text.size(); ++n) {
    if ((byte_at(text, text.size() - n) & 0xC0) != 0x80) return n;
  }
  return 1;
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes) {
  const uint8_t lead = byte_at(bytes, 0);
  if (lead < 0x80) return {Utf8Kind::valid, lead, 1};
  const LeadInfo info = lead_info(lead);
  if (info.length == 0) return {Utf8Kind::invalid, 0, 1};
  uint32_t code_point = lead & (0x7F >> info.length);
  for (int i = 1; i < info.length; ++i) {
    if (static_cast<size_t>(i) == bytes.size()) return {Utf8Kind::incomplete, 0, i};
    const uint8_t b = byte_at(bytes, i);
    const uint8_t low = i == 1 ? info.second_low : 0x80;
    const uint8_t high = i == 1 ? info.second_high : 0xBF;
    if (b < low || b > high) return {Utf8Kind::invalid, 0, i};
    code_point = code_point << 6 | (b & 0x3F);
  }
  return {Utf8Kind::valid, code_point, info.length};
}

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::size_t utf8_length(std::string_view text) {
  return std::size_t(std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

void append_utf8_lossy(std::string& out, std::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    out += step.kind == Utf8Kind::valid ? bytes.substr(0, step.length) : kReplacementCharacter;
    bytes.remove_prefix(step.length);
  }
}

bool is_white_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view python_strip(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.kind != Utf8Kind::valid || !is_python_space(step.code_point)) break;
    text.remove_prefix(step.length);
  }
  while (!text.empty()) {
    const size_t n = last_character_length(text);
    const Utf8Step step = utf8_step(text.substr(text.size() - n));
    if (step.kind != Utf8Kind::valid || static_cast<size_t>(step.length) != n || !is_python_space(step.code_point)) {
      break;
    }
    text.remove_suffix(n);
  }
  return text;
}

std::string Utf8Stream::push(std::string_view bytes) {
  std::string joined;
  if (!pending_.empty()) {
    joined = pending_ + std::string(bytes);
    pending_.clear();
    bytes = joined;
  }
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    if (step.kind == Utf8Kind::incomplete) {
      pending_ = bytes;
      break;
    }
    out += step.kind == Utf8Kind::valid ? bytes.substr(0, step.length) : kReplacementCharacter;
    bytes.remove_prefix(step.length);
  }
  return out;
}

std::string Utf8Stream::finish() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(kReplacementCharacter);
}

}  // namespace lily
