#include "server/stop_finder.h"

#include <algorithm>
#include <utility>

namespace lily::server {

std::string StopFinder::cut(std::size_t at) {
  found_ = true;
  held_.resize(at);
  return std::exchange(held_, {});
}

std::size_t StopFinder::first_match() const {
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  return first;
}

std::string StopFinder::push(std::string_view text) {
  if (found_) return {};
  if (stops_.empty()) return std::string(text);
  held_ += text;
  std::size_t open = held_.size();  // where one may have begun that is not complete
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > held_.size() - open; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) open = held_.size() - n;
    }
  }
  const std::size_t first = first_match();
  if (first <= open) return cut(first);
  std::string out = held_.substr(0, open);
  held_.erase(0, open);
  return out;
}

std::string StopFinder::finish() {
  const std::size_t first = first_match();
  return first == std::string::npos ? std::exchange(held_, {}) : cut(first);
}

}  // namespace lily::server
