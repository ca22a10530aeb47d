#include "text/added_tokens.h"

#include <algorithm>

#include "text/utf8.h"

namespace lily {
namespace {

// Start of the white space that ends at `end`, not before `floor`.
size_t white_space_before(std::string_view text, size_t floor, size_t end) {
  while (end > floor) {
    size_t begin = end - 1;
    while (begin > floor && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    const Utf8Step step = utf8_step(text.substr(begin, end - begin));
    if (step.kind != Utf8Kind::valid || !is_white_space(step.code_point)) break;
    end = begin;
  }
  return end;
}

size_t white_space_after(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const Utf8Step step = utf8_step(text.substr(begin));
    if (step.kind != Utf8Kind::valid || !is_white_space(step.code_point)) break;
    begin += step.length;
  }
  return begin;
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token) {
  int32_t node = 0;
  for (const char c : token.content) {
    const auto byte = static_cast<unsigned char>(c);
    auto& children = nodes_[node].children;
    const auto it =
        std::find_if(children.begin(), children.end(), [&](const auto& child) { return child.first == byte; });
    if (it != children.end()) {
      node = it->second;
    } else {
      const auto fresh = static_cast<int32_t>(nodes_.size());
      children.emplace_back(byte, fresh);
      nodes_.emplace_back();
      node = fresh;
    }
  }
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

int32_t AddedTokenMatcher::longest_at(std::string_view text, std::string_view content_mask, size_t at) const {
  int32_t node = 0, found = -1;
  for (size_t i = at; i < text.size(); ++i) {
    if (!content_mask.empty() && content_mask[i]) break;
    const auto& children = nodes_[node].children;
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto it =
        std::find_if(children.begin(), children.end(), [&](const auto& child) { return child.first == byte; });
    if (it == children.end()) break;
    node = it->second;
    if (nodes_[node].token >= 0) found = nodes_[node].token;
  }
  return found;
}

std::vector<AddedTokenMatcher::Match> AddedTokenMatcher::find(std::string_view text,
                                                              std::string_view content_mask) const {
  std::vector<Match> matches;
  if (tokens_.empty()) return matches;
  bool starts[256] = {};
  for (const auto& child : nodes_[0].children) starts[child.first] = true;
  size_t covered = 0;  // end of the last match, white space included
  for (size_t at = 0; at < text.size();) {
    if (!starts[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const int32_t index = longest_at(text, content_mask, at);
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[index];
    const size_t text_end = at + token.content.size();
    if (at >= covered) {  // else it is white space that the token before has taken
      const size_t begin = token.lstrip ? white_space_before(text, covered, at) : at;
      covered = token.rstrip ? white_space_after(text, text_end) : text_end;
      matches.push_back({begin, covered, token.id});
    }
    at = text_end;
  }
  return matches;
}

}  // namespace lily
