// The tags of the tool-call format, matched at the start of a text that may still grow.
//
// Every answer is final: `more` is given while what follows could change it, and never when `ended` says that nothing
// follows. White space between tags and the names inside them have a bound, so what must wait is bounded too.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace lily::tool_syntax {

enum class Match { no, more, yes };

inline constexpr std::string_view kCallOpen = "<tool_call>", kCallClose = "</tool_call>";
inline constexpr std::string_view kFunctionOpen = "<function=", kFunctionClose = "</function>";
inline constexpr std::string_view kParameterOpen = "<parameter=", kParameterClose = "</parameter>";

/// A place in a text, moved on by what matches there. After `no` or `more` the place is where it was.
class Cursor {
 public:
  Cursor(std::string_view text, bool ended) : text_(text), ended_(ended) {}
  size_t at() const { return at_; }
  std::string_view rest() const { return text_.substr(at_); }

  Match literal(std::string_view wanted);
  /// White space, possibly none; `no` when there is more of it than belongs between tags.
  Match space();
  /// `open`, a name of 1 to 256 characters without '<', '>' and newlines and not all blank, and '>'.
  Match name_tag(std::string_view open, std::string& name);
  /// Nothing follows any more.
  bool at_end() const { return ended_ && at_ == text_.size(); }

 private:
  std::string_view text_;
  bool ended_;
  size_t at_ = 0;
};

/// What stands at a place inside a parameter's value.
struct ValuePart {
  enum class Kind {
    text,          // `length` characters of the value
    more,          // it depends on what follows
    nested_open,   // value text that opens a function of an example
    nested_close,  // value text that closes one
    end,           // the value ends here; `length` characters of markup follow it
  };
  Kind kind;
  size_t length = 0;
};

/// Judges `rest`, which begins with '<', '\r' or '\n'. `depth` counts the functions opened inside the value.
/// `may_follow(name)`: whether a parameter of that name may come next (it was not given yet).
ValuePart value_part(std::string_view rest, bool ended, int depth,
                     const std::function<bool(const std::string&)>& may_follow);

}  // namespace lily::tool_syntax
