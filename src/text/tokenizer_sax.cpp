#include "text/tokenizer_sax.h"

#include "base/error.h"
#include "base/json_fault.h"

namespace lily {
namespace {
constexpr size_t kMaxDepth = 64;
}

void TokenizerSax::fail(const std::string& what) const {
  throw Error(ErrorCode::corrupt, name_ + ": " + what);
}

TokenizerSax::json* TokenizerSax::place(json v) {
  if (open_.empty()) {
    root_ = std::move(v);
    return &root_;
  }
  json& parent = *open_.back();
  if (parent.is_array()) {
    parent.push_back(std::move(v));
    return &parent.back();
  }
  json& slot = parent[keys_.back()];
  slot = std::move(v);
  return &slot;
}

bool TokenizerSax::value(json v) {
  if (mode_ == Mode::vocab) fail("model.vocab: the id of '" + token_ + "' is not a whole number");
  if (mode_ != Mode::tree)
    fail("model.merges[" + std::to_string(file_.merges.size()) + "]: expected a pair of strings");
  place(std::move(v));
  return true;
}

bool TokenizerSax::number(json v, int64_t id) {
  if (mode_ != Mode::vocab) return value(std::move(v));
  if (id < 0 || id > INT32_MAX) fail("model.vocab: the id of '" + token_ + "' is out of range");
  file_.vocab.emplace_back(std::move(token_), static_cast<int32_t>(id));
  return true;
}

bool TokenizerSax::number_unsigned(number_unsigned_t v) {
  return number(v, v > INT32_MAX ? -1 : static_cast<int64_t>(v));
}

bool TokenizerSax::string(string_t& v) {
  if (mode_ == Mode::merges) {  // the older form: "left right"
    const size_t space = v.find(' ');
    if (space == std::string::npos || v.find(' ', space + 1) != std::string::npos) {
      fail("model.merges[" + std::to_string(file_.merges.size()) + "]: expected two tokens and one space, found '" + v +
           "'");
    }
    file_.merges.emplace_back(v.substr(0, space), v.substr(space + 1));
    return true;
  }
  if (mode_ == Mode::merge_pair) {
    pair_.push_back(std::move(v));
    return true;
  }
  return value(std::move(v));
}

bool TokenizerSax::start_object(std::size_t) {
  if (mode_ != Mode::tree) return value(nullptr);
  if (keys_.size() == 2 && keys_[0] == "model" && keys_[1] == "vocab") {
    mode_ = Mode::vocab;
    place(nullptr);
    return true;
  }
  if (open_.size() >= kMaxDepth) fail("nested deeper than " + std::to_string(kMaxDepth));
  open_.push_back(place(json::object()));
  keys_.emplace_back();
  return true;
}

bool TokenizerSax::key(string_t& v) {
  (mode_ == Mode::vocab ? token_ : keys_.back()) = std::move(v);
  return true;
}

bool TokenizerSax::end_object() {
  if (mode_ == Mode::vocab) {
    mode_ = Mode::tree;
    return true;
  }
  open_.pop_back();
  keys_.pop_back();
  return true;
}

bool TokenizerSax::start_array(std::size_t) {
  if (mode_ == Mode::merges) {
    mode_ = Mode::merge_pair;
    pair_.clear();
    return true;
  }
  if (mode_ != Mode::tree) return value(nullptr);
  if (keys_.size() == 2 && keys_[0] == "model" && keys_[1] == "merges") {
    mode_ = Mode::merges;
    place(nullptr);
    return true;
  }
  if (open_.size() >= kMaxDepth) fail("nested deeper than " + std::to_string(kMaxDepth));
  open_.push_back(place(json::array()));
  keys_.emplace_back();
  return true;
}

bool TokenizerSax::end_array() {
  if (mode_ == Mode::merge_pair) {
    if (pair_.size() != 2) value(nullptr);
    file_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
    mode_ = Mode::merges;
  } else if (mode_ == Mode::merges) {
    mode_ = Mode::tree;
  } else {
    open_.pop_back();
    keys_.pop_back();
  }
  return true;
}

bool TokenizerSax::parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
  fail(json_fault(text_, position));
}

}  // namespace lily
