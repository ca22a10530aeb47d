// Stop strings in a text that comes in pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lily::server {

/// Cuts the text before the first place where one of the strings occurs, however it comes in pieces. What could still become one is
/// held back, no more. Of two that overlap the one that begins first counts, so a complete one waits for a longer one that began
/// before it.
class StopFinder {
 public:
  explicit StopFinder(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  /// The text that is certain not to belong to a stop string; nothing any more once found().
  std::string push(std::string_view text);
  /// What was held back, at the end.
  std::string finish();
  bool found() const { return found_; }

 private:
  std::string cut(std::size_t at);
  std::size_t first_match() const;

  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace lily::server
