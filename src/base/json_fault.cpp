#include "base/json_fault.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lily {
namespace {

constexpr std::string_view kWordChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-._";

/// The number grammar of JSON.
bool is_number(std::string_view word) {
  const auto digits = [&word] {
    const std::size_t n = std::min(word.find_first_not_of("0123456789"), word.size());
    word.remove_prefix(n);
    return n;
  };
  if (word.starts_with('-')) word.remove_prefix(1);
  const bool zero = word.starts_with('0');
  const std::size_t whole = digits();
  if (whole == 0 || (zero && whole > 1)) return false;
  if (word.starts_with('.')) {
    word.remove_prefix(1);
    if (digits() == 0) return false;
  }
  if (word.starts_with('e') || word.starts_with('E')) {
    word.remove_prefix(1);
    if (word.starts_with('+') || word.starts_with('-')) word.remove_prefix(1);
    if (digits() == 0) return false;
  }
  return word.empty();
}

bool is_word(std::string_view word) {
  return word == "true" || word == "false" || word == "null" || is_number(word);
}

/// Walks the tokens of the text up to the one at fault.
class Walk {
 public:
  Walk(std::string_view text, std::size_t end) : text_(text), end_(end) {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte order mark is skipped by the parser, too
  }

  /// At the end: at() is where the token at fault begins, expected() what could stand there.
  void run() {
    while (true) {
      at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
      if (at_ == text_.size() || !take()) return;
    }
  }

  std::size_t at() const { return at_; }
  std::string expected() const {
    if (bad_string_) return "a string in UTF-8, with control characters and \\ escaped, and a quote at its end";
    switch (next_) {
      case Next::value:
        return "a value";
      case Next::value_or_end:
        return "a value or ']'";
      case Next::key:
        return "a key in quotes";
      case Next::key_or_end:
        return "a key in quotes or '}'";
      case Next::colon:
        return "':'";
      case Next::comma_or_end:
        return open_.empty() ? "the end" : open_.back() == '{' ? "',' or '}'" : "',' or ']'";
    }
    return "";
  }
  std::string found() const {
    if (at_ >= text_.size()) return "the end";
    constexpr std::size_t kShown = 20;
    std::size_t length = bad_string_ ? std::string_view::npos : text_.find_first_not_of(kWordChars, at_) - at_;
    length = std::clamp<std::size_t>(std::min(length, text_.size() - at_), 1, kShown);
    std::string shown;
    for (const char c : text_.substr(at_, length)) shown += c >= 0x20 && c < 0x7f ? c : '?';
    return "'" + shown + (length == kShown ? "…'" : "'");
  }

 private:
  enum class Next { value, value_or_end, key, key_or_end, colon, comma_or_end };

  /// Takes the token at at_; false when it is the one at fault.
  bool take() {
    const char c = text_[at_];
    const bool key = next_ == Next::key || next_ == Next::key_or_end;
    const bool value = next_ == Next::value || next_ == Next::value_or_end;
    switch (c) {
      case '{':
      case '[':
        if (!value || !ends_before(at_ + 1)) return false;
        open_ += c;
        next_ = c == '{' ? Next::key_or_end : Next::value_or_end;
        break;
      case '}':
      case ']': {
        const bool closes = !open_.empty() && open_.back() == (c == '}' ? '{' : '[') &&
                            (next_ == Next::comma_or_end || next_ == (c == '}' ? Next::key_or_end : Next::value_or_end));
        if (!closes || !ends_before(at_ + 1)) return false;
        open_.pop_back();
        next_ = Next::comma_or_end;
        break;
      }
      case ',':
        if (next_ != Next::comma_or_end || open_.empty() || !ends_before(at_ + 1)) return false;
        next_ = open_.back() == '{' ? Next::key : Next::value;
        break;
      case ':':
        if (next_ != Next::colon || !ends_before(at_ + 1)) return false;
        next_ = Next::value;
        break;
      case '"':
        if ((!key && !value) || !take_string()) return false;
        next_ = key ? Next::colon : Next::comma_or_end;
        return true;
      default: {
        const std::size_t end = std::min(text_.find_first_not_of(kWordChars, at_), text_.size());
        if (!value || !is_word(text_.substr(at_, end - at_)) || !ends_before(end)) return false;
        next_ = Next::comma_or_end;
        at_ = end;
        return true;
      }
    }
    ++at_;
    return true;
  }

  /// A token that ends where the parser stopped is the one it stopped at: its inside is wrong (an escape, a number
  /// beyond all doubles), whatever the grammar of tokens says.
  bool ends_before(std::size_t end) const { return end < end_; }

  bool take_string() {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    if (end < text_.size() && ends_before(end + 1)) {
      at_ = end + 1;
      return true;
    }
    bad_string_ = true;
    return false;
  }

  std::string_view text_;
  std::size_t end_;
  std::size_t at_ = 0;
  std::string open_;  // '{' and '[' around at_
  Next next_ = Next::value;
  bool bad_string_ = false;
};

/// The parser itself does not recurse.
template <class Json>
Json parse(std::string_view text, const std::string& file, ErrorCode code) {
  using Event = typename Json::parse_event_t;
  const auto bounded = [&](int depth, Event event, const Json&) {
    if ((event == Event::object_start || event == Event::array_start) && std::size_t(depth) >= kMaxJsonDepth)
      throw Error(code, file + ": JSON nested deeper than " + std::to_string(kMaxJsonDepth));
    return true;
  };
  try {
    return Json::parse(text, bounded);
  } catch (const typename Json::parse_error& e) {
    throw Error(code, file + ": " + json_fault(text, e.byte));
  } catch (const typename Json::out_of_range&) {
    throw Error(code, file + ": a number in it is beyond the largest double");
  }
}

}  // namespace

std::string json_fault(std::string_view text, std::size_t reported) {
  Walk walk(text, reported);
  walk.run();
  const std::string_view before = text.substr(0, walk.at());
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t column = walk.at() - (before.rfind('\n') + 1);  // npos + 1 is 0
  return "not JSON: byte " + std::to_string(walk.at() + 1) + " (line " + std::to_string(line) + ", column " +
         std::to_string(column + 1) + "): expected " + walk.expected() + ", found " + walk.found();
}

nlohmann::json parse_json_file(std::string_view text, const std::string& file, ErrorCode code) {
  return parse<nlohmann::json>(text, file, code);
}

nlohmann::ordered_json parse_ordered_json_file(std::string_view text, const std::string& file, ErrorCode code) {
  return parse<nlohmann::ordered_json>(text, file, code);
}

nlohmann::json parse_json_or_null(std::string_view text) {
  try {
    return parse_json_file(text, "");
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace lily
