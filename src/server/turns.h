// What the model generated, remembered as ids.
//
// A client sends back an answer as text. Read again, that text may become other ids than those which the model chose, and the
// cached state of the turn would be of no use. So where an assistant message of a request means the same as a remembered turn (same
// messages before it, same content, same calls, same reasoning), the remembered ids stand in for its rendering.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/messages.h"

namespace lily::server {

struct Turn {
  std::vector<std::int32_t> prompt;     // with the opening of the answer
  std::vector<std::int32_t> generated;  // without the end token
  std::string reasoning;
  std::int64_t bytes() const { return std::int64_t(sizeof(std::int32_t) * (prompt.size() + generated.size()) + reasoning.size()); }
};

/// A key for each message: equal where it and all before it mean the same, whatever the JSON looked like. Reasoning does not count.
std::vector<std::string> turn_keys(const ChatInput& input);
/// The key that `answer` would have after the messages of `input`.
std::string turn_key(const ChatInput& input, const Message& answer);

/// Thread-safe; forgets what was used longest ago beyond `bytes`.
class TurnMemory {
 public:
  explicit TurnMemory(std::int64_t bytes) : limit_(bytes) {}
  void remember(const std::string& key, Turn turn);
  std::shared_ptr<const Turn> find(const std::string& key);
  std::int64_t bytes() const;

 private:
  using Entries = std::list<std::pair<std::string, std::shared_ptr<const Turn>>>;
  mutable std::mutex mutex_;
  std::int64_t limit_, bytes_ = 0;
  Entries entries_;  // most recently used first
  std::unordered_map<std::string, Entries::iterator> by_key_;
};

}  // namespace lily::server
