#include "text/regex_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "base/error.h"
#include "text/unicode_versions.h"

namespace lily {
namespace {

// The property White_Space, to stand inside a character class. PCRE2's own \s adds U+180E.
constexpr std::string_view kSpaceRanges =
    R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// Escapes that mean other sets of characters, or other things, in the two dialects.
constexpr std::string_view kForeignEscapes = "wWbBhHRXKGyYOvN";

constexpr uint32_t kMinMatchLimit = 10'000'000;  // PCRE2's default
constexpr uint32_t kStepsPerByte = 64;
constexpr uint32_t kHeapLimitKib = 256 * 1024;
constexpr uint32_t kDepthLimit = 1'000'000;

// What a property of the reference holds beyond PCRE2's: see unicode_versions.h.
std::string_view added_since(std::string_view property) {
  if (property == "\\p{L}") return kNewLetters;
  if (property == "\\p{N}") return kNewNumbers;
  if (property == "\\p{M}") return kNewMarks;
  return {};
}

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::unsupported,
              where + ": " + what + " means something else to PCRE2; this pattern is not supported");
}

std::string pcre2_message(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

// The last characters of `text`: a whole pattern can be a page long.
std::string end_of(std::string_view text) {
  constexpr size_t kShown = 24;
  if (text.size() <= kShown) return std::string(text);
  text.remove_prefix(text.size() - kShown);
  while (!text.empty() && (static_cast<unsigned char>(text[0]) & 0xC0) == 0x80) text.remove_prefix(1);
  return "…" + std::string(text);
}

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

}  // namespace

struct RegexSplitter::Compiled {
  pcre2_code* code = nullptr;
  ~Compiled() { pcre2_code_free(code); }
};

std::string translate_oniguruma(std::string_view pattern, const std::string& where) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escape = pattern[++i];
      if (kForeignEscapes.find(escape) != std::string_view::npos) refuse(where, std::string("'\\") + escape + "'");
      if (escape == 'S' && in_class) refuse(where, "'\\S' inside a character class");
      const std::string_view property = pattern.substr(i - 1, 5);
      if (const std::string_view added = added_since(property); !added.empty()) {
        i += property.size() - 2;
        out += in_class ? "" : "[";
        out += property;
        out += added;
        out += in_class ? "" : "]";
      } else if (escape == 's') {
        out += in_class ? std::string(kSpaceRanges) : "[" + std::string(kSpaceRanges) + "]";
      } else if (escape == 'S') {
        out += "[^" + std::string(kSpaceRanges) + "]";
      } else {
        out += {'\\', escape};
      }
      continue;
    }
    if (in_class) {
      if (c == '[') refuse(where, "'[' inside a character class");
      if (c == '&' && pattern.substr(i, 2) == "&&") refuse(where, "'&&' inside a character class");
      if (c == ']') in_class = false;
    } else if (c == '[') {
      in_class = true;
      out += c;
      if (pattern.substr(i + 1, 1) == "^") out += pattern[++i];
      if (pattern.substr(i + 1, 1) == "]") refuse(where, "']' at the start of a character class");
      continue;
    } else if (c == '^' || c == '$') {
      refuse(where, std::string("'") + c + "'");
    }
    out += c;
  }
  return out;
}

RegexSplitter::RegexSplitter(std::string_view pattern, std::string where)
    : compiled_(std::make_unique<Compiled>()), where_(std::move(where)) {
  const std::string translated = translate_oniguruma(pattern, where_);
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (!compiled_->code) {
    throw Error(ErrorCode::unsupported, where_ + ": not a pattern PCRE2 takes: " + pcre2_message(error) + " after '" +
                                            end_of(std::string_view(translated).substr(0, offset)) + "'");
  }
  pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE);  // where there is no JIT, pcre2_match interprets
}

RegexSplitter::~RegexSplitter() = default;
RegexSplitter::RegexSplitter(RegexSplitter&&) noexcept = default;
RegexSplitter& RegexSplitter::operator=(RegexSplitter&&) noexcept = default;

void RegexSplitter::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(compiled_->code, nullptr));
  const std::unique_ptr<pcre2_match_context, FreeMatch> context(pcre2_match_context_create(nullptr));
  if (!match || !context) throw Error(ErrorCode::out_of_memory, where_ + ": no memory for a match");
  const uint64_t steps = std::max<uint64_t>(kMinMatchLimit, uint64_t{kStepsPerByte} * text.size());
  pcre2_set_match_limit(context.get(), static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX)));
  pcre2_set_depth_limit(context.get(), kDepthLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);

  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t done = 0;    // everything before is in `pieces`
  size_t search = 0;  // where the next match may begin
  while (search < text.size()) {
    // The text was checked once by the caller; checking it again at every match would be quadratic.
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int rc = pcre2_match(compiled_->code, subject, text.size(), search, options, match.get(), context.get());
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its frames on the heap
      options |= PCRE2_NO_JIT;
      rc = pcre2_match(compiled_->code, subject, text.size(), search, options, match.get(), context.get());
    }
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      throw Error(ErrorCode::unsupported, where_ + ": the pattern cannot be matched at byte " + std::to_string(search) +
                                              " of a text of " + std::to_string(text.size()) +
                                              " bytes: " + pcre2_message(rc));
    }
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match.get());
    const size_t begin = span[0], end = span[1];
    if (end <= begin) {  // an empty match splits nothing; go on at the next character
      search = std::max(search, begin) + 1;
      while (search < text.size() && (static_cast<unsigned char>(text[search]) & 0xC0) == 0x80) ++search;
      continue;
    }
    if (begin > done) pieces.push_back(text.substr(done, begin - done));
    pieces.push_back(text.substr(begin, end - begin));
    done = search = end;
  }
  if (done < text.size()) pieces.push_back(text.substr(done));
}

}  // namespace lily
