#include "text/json_text.h"

#include <algorithm>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/json_fault.h"
#include "base/log.h"

namespace lily {
namespace {

using json = nlohmann::ordered_json;

constexpr size_t kMaxDumpDepth = 256;
constexpr size_t kMaxPath = 120;

// Builds the value. An object of nlohmann::ordered_json finds a key by a scan, so the index of each open object's
// keys is kept here.
class Builder final : public nlohmann::json_sax<json> {
 public:
  Builder(std::string_view text, size_t max_depth) : text_(text), max_depth_(max_depth) {}
  json& root() { return root_; }

  bool null() override { return place(nullptr), true; }
  bool boolean(bool v) override { return place(v), true; }
  bool number_integer(number_integer_t v) override { return place(v), true; }
  bool number_unsigned(number_unsigned_t v) override { return place(v), true; }
  bool number_float(number_float_t v, const string_t& text) override {
    if (text.find_first_of(".eE") != std::string::npos) return place(v), true;
    return place(json::binary(std::vector<uint8_t>(text.begin(), text.end()), kBigIntegerSubtype)), true;
  }
  bool string(string_t& v) override { return place(std::move(v)), true; }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(json::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& v) override {
    Level& level = levels_.back();
    auto& members = level.value->get_ref<json::object_t&>();
    const auto [it, fresh] = level.index.emplace(v, members.size());
    if (fresh) members.push_back({v, json()});  // of the vector beneath: no search
    level.member = it->second;
    return true;
  }
  bool parse_error(size_t position, const std::string& token, const nlohmann::detail::exception& e) override {
    constexpr int kNumberOverflow = 406;  // formed as JSON wants it, so the place to name is the value's own
    if (e.id == kNumberOverflow) {
      const std::string path = path_here();
      throw Error(ErrorCode::invalid_argument, (path.empty() ? "" : path + ": ") +
                                                   "expected a number in the range of a double, found " +
                                                   shortened(token, 20));
    }
    throw Error(ErrorCode::invalid_argument, json_fault(text_, position));
  }

 private:
  struct Level {
    json* value;
    std::unordered_map<std::string, size_t> index;
    size_t member = 0;
  };

  json* place(json v) {
    if (levels_.empty()) {
      root_ = std::move(v);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.value->is_array()) {
      level.value->push_back(std::move(v));
      return &level.value->back();
    }
    // ordered_map derives from a vector of pairs.
    json& slot = level.value->get_ref<json::object_t&>().begin()[static_cast<ptrdiff_t>(level.member)].second;
    slot = std::move(v);
    return &slot;
  }
  bool open(json container) {
    if (levels_.size() >= max_depth_) {
      const std::string path = path_here();
      throw Error(ErrorCode::invalid_argument,
                  (path.empty() ? "" : path + ": ") + "JSON nested deeper than " + std::to_string(max_depth_));
    }
    json* value = place(std::move(container));
    levels_.push_back({value, {}, 0});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  // Of the value that is about to come: "messages[0].content".
  std::string path_here() const {
    std::string path;
    for (const Level& level : levels_) {
      if (level.value->is_array()) {
        const size_t begun = &level != &levels_.back() ? 1 : 0;  // what is open inside of it is an element already
        if (!extend_path(path, level.value->size() - begun)) break;
      } else {
        const auto& members = level.value->get_ref<const json::object_t&>();
        if (!extend_path(path, members.begin()[static_cast<ptrdiff_t>(level.member)].first)) break;
      }
    }
    return path;
  }

  std::string_view text_;
  size_t max_depth_;
  json root_;
  std::vector<Level> levels_;
};

std::string big_integer(const json& value) {
  const auto& digits = value.get_binary();
  if (!digits.has_subtype() || digits.subtype() != kBigIntegerSubtype) {
    throw Error(ErrorCode::invalid_argument, "JSON holds binary data");
  }
  return {digits.begin(), digits.end()};
}

void dump(const json& value, std::string& out, size_t depth) {
  if (depth > kMaxDumpDepth) {
    throw Error(ErrorCode::invalid_argument, "JSON nested deeper than " + std::to_string(kMaxDumpDepth));
  }
  switch (value.type()) {
    case json::value_t::null:
    case json::value_t::discarded:
      out += "null";
      break;
    case json::value_t::boolean:
      out += value.get<bool>() ? "true" : "false";
      break;
    case json::value_t::number_integer:
      out += std::to_string(value.get<int64_t>());
      break;
    case json::value_t::number_unsigned:
      out += std::to_string(value.get<uint64_t>());
      break;
    case json::value_t::number_float: {
      const std::string text = python_float(value.get<double>());
      out += text == "inf" ? "Infinity" : text == "-inf" ? "-Infinity" : text == "nan" ? "NaN" : text;
      break;
    }
    case json::value_t::string:
      out += '"';
      append_json_escaped(out, value.get_ref<const std::string&>());
      out += '"';
      break;
    case json::value_t::binary:
      out += big_integer(value);
      break;
    case json::value_t::array: {
      out += '[';
      const char* separator = "";
      for (const json& item : value) {
        out += separator;
        dump(item, out, depth + 1);
        separator = ", ";
      }
      out += ']';
      break;
    }
    case json::value_t::object: {
      out += '{';
      const char* separator = "";
      for (const auto& [key, item] : value.get_ref<const json::object_t&>()) {
        out += separator;
        out += '"';
        append_json_escaped(out, key);
        out += "\": ";
        dump(item, out, depth + 1);
        separator = ", ";
      }
      out += '}';
      break;
    }
  }
}

}  // namespace

json parse_json(std::string_view text, size_t max_depth) {
  // The library takes a NUL for the end of the text, whatever follows it.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw Error(ErrorCode::invalid_argument, json_fault(text, nul + 1));
  }
  Builder builder(text, max_depth);
  json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder.root());
}

std::string python_json(const json& value) {
  std::string out;
  dump(value, out, 0);
  return out;
}

void append_json_escaped(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += "\\u00";
          out += kHex[c >> 4];
          out += kHex[c & 15];
        } else {
          out += c;
        }
    }
  }
}

std::vector<std::string> members_beyond(const json& object, std::initializer_list<std::string_view> known) {
  std::vector<std::string> names;
  if (!object.is_object()) return names;
  for (const auto& [key, value] : object.get_ref<const json::object_t&>()) {
    if (!value.is_null() && std::find(known.begin(), known.end(), key) == known.end()) names.push_back(key);
  }
  return names;
}

std::string kind_of(const json& value) {
  return value.is_binary() ? "number" : value.type_name();
}

bool extend_path(std::string& path, std::string_view key) {
  constexpr std::string_view kWord = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-$";
  if (key.empty() || path.size() + key.size() > kMaxPath || key.find_first_not_of(kWord) != std::string_view::npos)
    return false;
  if (!path.empty()) path += '.';
  path += key;
  return true;
}

bool extend_path(std::string& path, size_t index) {
  if (path.size() > kMaxPath - 20) return false;
  path += "[" + std::to_string(index) + "]";
  return true;
}

std::string python_float(double value) {
  // {fmt} follows Python's repr (the fewest digits, an exponent below 1e-4 and from 1e16 on), save for the ".0".
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".ein") == std::string::npos) text += ".0";
  return text;
}

const nlohmann::ordered_json& member(const nlohmann::ordered_json& object, const char* key) {
  static const nlohmann::ordered_json none;
  if (!object.is_object()) return none;
  const auto it = object.find(key);
  return it == object.end() ? none : *it;
}

}  // namespace lily
