// Added tokens ("control tokens"): strings of tokenizer.json that are matched in the text before anything else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lily {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool lstrip = false;      // takes the white space before it
  bool rstrip = false;      // takes the white space after it
  bool normalized = false;  // looked for in the normalised text, not in the raw one
  bool special = false;     // decoding may leave it out
};

/// Finds a fixed set of strings in one pass: leftmost match first, the longest one there.
class AddedTokenMatcher {
 public:
  struct Match {
    size_t begin, end;
    int32_t id;
  };

  /// `token.content` must not be empty.
  void add(const AddedToken& token);
  bool empty() const { return tokens_.empty(); }

  /// Matches in `text`, in order, not overlapping. `content_mask`, where not empty, has one byte a byte of `text`; a
  /// match never touches a byte whose mask is set (white space taken by lstrip and rstrip may lie there).
  std::vector<Match> find(std::string_view text, std::string_view content_mask) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, int32_t>> children;
    int32_t token = -1;  // index into tokens_
  };
  int32_t longest_at(std::string_view text, std::string_view content_mask, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_ = std::vector<Node>(1);
};

}  // namespace lily
