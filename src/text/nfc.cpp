#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "text/unicode_versions.h"
#include "text/utf8.h"

namespace lily {
namespace {

constexpr auto kNfc = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

void append_decomposed(std::vector<utf8proc_int32_t>& out, uint32_t code_point) {
  utf8proc_int32_t buffer[32];  // the longest canonical decomposition has 4 code points
  int last_boundclass = 0;
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), buffer, 32, kNfc, &last_boundclass);
  if (n < 0 || n > 32) throw Error(ErrorCode::internal, "NFC: cannot decompose a code point");
  out.insert(out.end(), buffer, buffer + n);
}

// Canonical ordering. utf8proc's own exchanges neighbours, which is quadratic on a long run of combining marks.
void order_marks(std::vector<utf8proc_int32_t>& text) {
  const auto combining_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  size_t i = 0;
  while (i < text.size()) {
    if (combining_class(text[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && combining_class(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + i, text.begin() + end,
                     [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
}

// Composes what is in `scratch` and appends it to `out`.
void flush_composed(std::vector<utf8proc_int32_t>& scratch, std::string& out) {
  order_marks(scratch);
  const auto n = utf8proc_normalize_utf32(scratch.data(), static_cast<utf8proc_ssize_t>(scratch.size()), kNfc);
  if (n < 0) throw Error(ErrorCode::internal, std::string("NFC: ") + utf8proc_errmsg(n));
  for (utf8proc_ssize_t i = 0; i < n; ++i) append_utf8(out, static_cast<uint32_t>(scratch[i]));
  scratch.clear();
}

std::string normalise_stretch(std::string_view text, std::vector<utf8proc_int32_t>& scratch) {
  std::string out;
  out.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    if (is_outside_nfc(step.code_point)) {
      flush_composed(scratch, out);
      append_utf8(out, step.code_point);
    } else {
      append_decomposed(scratch, step.code_point);
    }
    rest.remove_prefix(step.length);
  }
  flush_composed(scratch, out);
  return out;
}

bool is_ascii(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}

}  // namespace

std::string nfc(std::string_view text, std::string* mask) {
  std::string out, out_mask;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> scratch;
  size_t i = 0;
  while (i < text.size()) {
    // ASCII is its own NFC; only the last ASCII character before other text can compose with what follows.
    size_t stretch = i;
    while (stretch < text.size() && is_ascii(text[stretch])) ++stretch;
    if (stretch > i && stretch < text.size()) --stretch;
    out.append(text, i, stretch - i);
    if (mask) out_mask.append(*mask, i, stretch - i);
    if (stretch == text.size()) break;
    size_t end = stretch + 1;
    while (end < text.size() && !is_ascii(text[end])) ++end;
    const std::string_view before = text.substr(stretch, end - stretch);
    const std::string after = normalise_stretch(before, scratch);
    out += after;
    if (mask && after == before) {
      out_mask.append(*mask, stretch, before.size());
    } else if (mask) {
      const auto first = mask->begin() + static_cast<ptrdiff_t>(stretch);
      out_mask.append(after.size(), *std::max_element(first, first + static_cast<ptrdiff_t>(before.size())));
    }
    i = end;
  }
  if (mask) *mask = std::move(out_mask);
  return out;
}

}  // namespace lily
