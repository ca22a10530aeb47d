#include "server/turns.h"

#include "base/digest.h"
#include "text/chat_template.h"
#include "text/utf8.h"

namespace lily::server {
namespace {

std::string sha256(const std::string& bytes) {
  Digest digest(Digest::Kind::sha256, bytes.size());
  digest.update(bytes);
  return digest.finish();
}

/// Appends a text so that no two lists of texts look alike.
void add(std::string& out, std::string_view text) {
  out += std::to_string(text.size());
  out += ':';
  out += text;
}

std::string meaning(const Message& m) {
  std::string out;
  add(out, std::to_string(int(m.role)));
  add(out, m.role == ChatRole::assistant ? assistant_parts(m).content : python_strip(m.content));
  for (const PastToolCall& call : m.tool_calls) {
    add(out, call.name);
    for (const ToolArgument& a : call.arguments) {
      add(out, a.name);
      add(out, std::to_string(int(a.kind)));
      add(out, a.value);
    }
  }
  return out;
}

std::string first_key(const ChatInput& input) {
  std::string out;
  for (const std::string& tool : input.tools) add(out, tool);
  return sha256(out);
}

}  // namespace

std::vector<std::string> turn_keys(const ChatInput& input) {
  std::vector<std::string> keys;
  std::string key = first_key(input);
  for (const Message& m : input.messages) keys.push_back(key = sha256(key + meaning(m)));
  return keys;
}

std::string turn_key(const ChatInput& input, const Message& answer) {
  const std::vector<std::string> keys = turn_keys(input);
  return sha256((keys.empty() ? first_key(input) : keys.back()) + meaning(answer));
}

void TurnMemory::remember(const std::string& key, Turn turn) {
  const std::lock_guard lock(mutex_);
  if (const auto old = by_key_.find(key); old != by_key_.end()) {
    bytes_ -= old->second->second->bytes();
    entries_.erase(old->second);
    by_key_.erase(old);
  }
  bytes_ += turn.bytes();
  entries_.emplace_front(key, std::make_shared<const Turn>(std::move(turn)));
  by_key_[key] = entries_.begin();
  while (bytes_ > limit_ && !entries_.empty()) {
    bytes_ -= entries_.back().second->bytes();
    by_key_.erase(entries_.back().first);
    entries_.pop_back();
  }
}

std::shared_ptr<const Turn> TurnMemory::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->second;
}

std::int64_t TurnMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace lily::server
