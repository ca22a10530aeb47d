#include "text/tool_schema.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/error.h"
#include "text/json_text.h"

namespace lily {
namespace {

using json = nlohmann::ordered_json;

constexpr int kMaxSchemaDepth = 32;  // of $ref and anyOf within each other: a schema may refer to itself
constexpr std::string_view kSpace = " \t\r\n";

// Follows "#/a/b" from the root of the tool's schema; null when it leads nowhere.
const json& resolve(const json& root, std::string_view ref) {
  static const json none;
  if (!ref.starts_with("#")) return none;
  const json* at = &root;
  for (size_t begin = 1; begin < ref.size();) {
    const size_t end = std::min(ref.find('/', begin + 1), ref.size());
    std::string key;
    for (size_t i = begin + 1; i < end; ++i) {
      if (ref[i] == '~' && i + 1 < end && (ref[i + 1] == '0' || ref[i + 1] == '1')) {
        key += ref[++i] == '0' ? '~' : '/';
      } else {
        key += ref[i];
      }
    }
    at = &member(*at, key.c_str());
    begin = end;
  }
  return *at;
}

void add_type_name(const json& name, ParameterType& type) {
  if (!name.is_string()) return;
  const auto& text = name.get_ref<const std::string&>();
  const ParameterType before = type;
  if (text == "string" || text == "str") type.string = true;
  if (text == "integer" || text == "int") type.integer = true;
  if (text == "number" || text == "float" || text == "double") type.number = true;
  if (text == "boolean" || text == "bool") type.boolean = true;
  if (text == "null") type.null = true;
  if (text == "object" || text == "dict") type.object = true;
  if (text == "array" || text == "list") type.array = true;
  if (!(type == before)) type.known = true;
}

// `names` as in "type": one or a list.
ParameterType names_of(const json& names) {
  ParameterType type;
  add_type_name(names, type);
  for (size_t i = 0; names.is_array() && i < names.size(); ++i) add_type_name(names[i], type);
  return type;
}

// ---- whether it is a schema ----

/// A place inside a schema. It becomes text for a message alone: keys may be long and many.
struct Place {
  const Place* parent = nullptr;
  std::string_view key;
  std::optional<size_t> index = std::nullopt;
};

std::string path_to(const Place& at) {
  std::vector<const Place*> way;
  for (const Place* p = &at; p; p = p->parent) way.push_back(p);
  std::string path(way.back()->key);
  for (auto p = way.rbegin() + 1; p != way.rend(); ++p) {
    if (!((*p)->index ? extend_path(path, *(*p)->index) : extend_path(path, (*p)->key))) break;
  }
  return path;
}

[[noreturn]] void fail(const Place& at, const std::string& expected, const json& found) {
  throw Error(ErrorCode::invalid_argument, path_to(at) + ": expected " + expected + ", found " + kind_of(found));
}

class SchemaCheck {
 public:
  explicit SchemaCheck(const std::function<void(const std::string&)>& unread) : unread_(unread) {}

  // The depth is that of the JSON text, which its reader bounds.
  void schema(const json& s, const Place& at) {
    if (s.is_boolean() || s.is_null()) return;
    if (!s.is_object()) fail(at, "a JSON Schema (an object)", s);
    for (const auto& [key, value] : s.get_ref<const json::object_t&>()) {
      if (!value.is_null()) keyword(key, value, {&at, key});
    }
  }

 private:
  void keyword(std::string_view key, const json& value, const Place& at) {
    const auto is = [&](std::initializer_list<std::string_view> keys) {
      return std::find(keys.begin(), keys.end(), key) != keys.end();
    };
    if (key == "type") return type(value, at);
    if (is({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})) {
      if (!value.is_object()) fail(at, "an object of schemas", value);
      for (const auto& [name, s] : value.get_ref<const json::object_t&>()) schema(s, {&at, name});
    } else if (is({"anyOf", "oneOf", "allOf", "prefixItems"}) || (key == "items" && value.is_array())) {
      if (!value.is_array()) fail(at, "a list of schemas", value);
      for (size_t i = 0; i < value.size(); ++i) schema(value[i], {&at, {}, i});
    } else if (is({"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"})) {
      schema(value, at);
    } else if (key == "enum") {
      if (!value.is_array()) fail(at, "a list of values", value);
    } else if (key == "$ref") {
      if (!value.is_string()) fail(at, "a string", value);
    } else if (key == "required" && !value.is_boolean()) {  // true and false: of one property, in the oldest drafts
      if (!value.is_array()) fail(at, "a list of names", value);
      for (size_t i = 0; i < value.size(); ++i) {
        if (!value[i].is_string()) fail({&at, {}, i}, "a name", value[i]);
      }
    }
  }

  void type(const json& names, const Place& at) {
    if (!names.is_string() && !names.is_array()) fail(at, "the name of a type or a list of names", names);
    for (size_t i = 0; names.is_array() && i < names.size(); ++i) {
      if (!names[i].is_string()) fail({&at, {}, i}, "the name of a type", names[i]);
    }
    if (!names_of(names).known) unread_(path_to(at));
  }

  const std::function<void(const std::string&)>& unread_;
};

// ---- types ----

void add_value(const json& value, ParameterType& type) {
  type.known = true;
  if (value.is_string()) type.string = true;
  if (value.is_number_integer() || value.is_binary()) type.integer = true;
  if (value.is_number_float()) type.number = true;
  if (value.is_boolean()) type.boolean = true;
  if (value.is_null()) type.null = true;
  if (value.is_object()) type.object = true;
  if (value.is_array()) type.array = true;
}

void add_all(const ParameterType& from, ParameterType& to) {
  if (!from.known) return;
  to.known = true;
  to.string |= from.string, to.integer |= from.integer, to.number |= from.number, to.boolean |= from.boolean;
  to.null |= from.null, to.object |= from.object, to.array |= from.array;
}

ParameterType common(const ParameterType& a, const ParameterType& b) {
  if (!a.known) return b;
  if (!b.known) return a;
  return {true,
          a.string && b.string,
          (a.integer && (b.integer || b.number)) || (b.integer && a.number),
          a.number && b.number,
          a.boolean && b.boolean,
          a.null && b.null,
          a.object && b.object,
          a.array && b.array};
}

// `budget` bounds the schemas looked at for one parameter: references can make a small schema very wide.
ParameterType type_of(const json& schema, const json& root, int depth, int& budget) {
  if (!schema.is_object() || depth > kMaxSchemaDepth || --budget < 0) return {};
  ParameterType type = names_of(member(schema, "type"));
  if (!type.known) {
    if (const json& values = member(schema, "enum"); values.is_array()) {
      for (const json& value : values) add_value(value, type);
    }
    if (schema.contains("const")) add_value(member(schema, "const"), type);
  }
  if (!type.known) {
    if (const json& ref = member(schema, "$ref"); ref.is_string()) {
      type = type_of(resolve(root, ref.get_ref<const std::string&>()), root, depth + 1, budget);
    }
    for (const char* key : {"anyOf", "oneOf"}) {
      const json& choices = member(schema, key);
      for (size_t i = 0; choices.is_array() && i < choices.size(); ++i) {
        add_all(type_of(choices[i], root, depth + 1, budget), type);
      }
    }
    const json& parts = member(schema, "allOf");
    for (size_t i = 0; parts.is_array() && i < parts.size(); ++i) {
      type = common(type, type_of(parts[i], root, depth + 1, budget));
    }
  }
  if (!type.known) {
    if (member(schema, "properties").is_object()) type.known = type.object = true;
    if (!member(schema, "items").is_null()) type.known = type.array = true;
  }
  if (type.known && member(schema, "nullable") == true) type.null = true;
  return type;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(out, text);
  return out + '"';
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

bool equals_ignoring_case(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] | 0x20) != lower[i]) return false;
  }
  return true;
}

// A decimal number: [+-] digits [. digits] [e [+-] digits], with a digit before or after the point.
struct Decimal {
  bool negative = false;
  std::string_view whole, fraction, exponent;
  bool is_json = false;  // spelled as JSON wants it
};

std::optional<Decimal> parse_decimal(std::string_view text) {
  Decimal d;
  const auto digits = [&] {
    size_t n = 0;
    while (n < text.size() && text[n] >= '0' && text[n] <= '9') ++n;
    const std::string_view run = text.substr(0, n);
    text.remove_prefix(n);
    return run;
  };
  const bool plus = text.starts_with('+');
  d.negative = text.starts_with('-');
  if (plus || d.negative) text.remove_prefix(1);
  d.whole = digits();
  const bool point = text.starts_with('.');
  if (point) text.remove_prefix(1), d.fraction = digits();
  if (d.whole.empty() && d.fraction.empty()) return std::nullopt;
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    const std::string_view from = text;
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    if (digits().empty()) return std::nullopt;
    d.exponent = from.substr(0, from.size() - text.size());
  }
  if (!text.empty()) return std::nullopt;
  d.is_json = !plus && !d.whole.empty() && (d.whole == "0" || d.whole[0] != '0') && point == !d.fraction.empty();
  return d;
}

// The digits of a decimal that is a whole number, such as 230.0 or 1e3; nothing for another one.
std::optional<std::string> whole_number(const Decimal& d) {
  int exponent = 0;
  const std::string_view text = d.exponent.substr(d.exponent.starts_with('+') ? 1 : 0);
  if (!text.empty() && std::from_chars(text.data(), text.data() + text.size(), exponent).ec != std::errc()) {
    return std::nullopt;
  }
  if (exponent < -400 || exponent > 400) return std::nullopt;
  std::string digits = std::string(d.whole) + std::string(d.fraction);
  long scale = exponent - static_cast<long>(d.fraction.size());
  for (; scale < 0; ++scale) {
    if (!digits.empty() && digits.back() != '0') return std::nullopt;
    if (!digits.empty()) digits.pop_back();
  }
  digits.append(static_cast<size_t>(scale), '0');
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) return "0";
  return (d.negative ? "-" : "") + digits;
}

// JSON keeps the digits as they were written; what JSON does not allow (+5, 007, .5) is respelled.
std::optional<std::string> number_json(std::string_view text, bool whole_only) {
  const auto decimal = parse_decimal(text);
  if (!decimal) return std::nullopt;
  if (whole_only) return whole_number(*decimal);
  std::string number;
  if (decimal->is_json) {
    number = text;
  } else {
    const size_t zeros = std::min(decimal->whole.find_first_not_of('0'), decimal->whole.size());
    if (decimal->negative) number.push_back('-');
    if (zeros == decimal->whole.size()) number.push_back('0');
    number.append(decimal->whole.substr(zeros));
    if (!decimal->fraction.empty()) number.append(1, '.').append(decimal->fraction);
    if (!decimal->exponent.empty()) number.append(1, 'e').append(decimal->exponent);
  }
  try {
    parse_json(number);  // refuses a number beyond the range of a double
    return number;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<std::string> structure_json(const ParameterType& type, std::string_view text) {
  if (text.empty() || (text[0] != '{' && text[0] != '[')) return std::nullopt;
  if (type.known && !(text[0] == '{' ? type.object : type.array)) return std::nullopt;
  try {
    parse_json(text);
    return std::string(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

void check_tool_schema(const json& schema, const std::string& path,
                       const std::function<void(const std::string&)>& unread) {
  if (schema.is_null()) return;
  const Place root{nullptr, path};
  if (!schema.is_object()) fail(root, "a JSON Schema of an object", schema);
  SchemaCheck(unread).schema(schema, root);
  const ParameterType type = names_of(member(schema, "type"));
  if (type.known && !type.object)
    throw Error(ErrorCode::invalid_argument, path + ".type: expected \"object\": arguments have names");
}

ToolSchemas::ToolSchemas(const json& tools) {
  if (!tools.is_array()) return;
  for (const json& entry : tools) {
    const json& wrapped = member(entry, "function");
    const json& function = wrapped.is_object() ? wrapped : entry;
    const json& name = member(function, "name");
    if (!name.is_string()) continue;
    Tool tool;
    const json& openai = member(function, "parameters");
    const json& schema = openai.is_object() ? openai : member(function, "input_schema");
    const json& properties = member(schema, "properties");
    if (properties.is_object()) {
      for (const auto& [key, value] : properties.get_ref<const json::object_t&>()) {
        int budget = 1000;
        tool.parameters[key] = type_of(value, schema, 0, budget);
      }
    }
    int budget = 1000;
    tool.others = type_of(member(schema, "additionalProperties"), schema, 0, budget);
    tools_[name.get<std::string>()] = std::move(tool);
  }
}

ParameterType ToolSchemas::parameter(std::string_view tool, std::string_view name) const {
  const auto it = tools_.find(tool);
  if (it == tools_.end()) return {};
  const auto found = it->second.parameters.find(name);
  return found == it->second.parameters.end() ? it->second.others : found->second;
}

std::string argument_json(const ParameterType& type, std::string_view raw) {
  const std::string_view text = trimmed(raw);
  if (const auto structure = structure_json(type, text)) return *structure;
  if (type.null && raw == "null") return "null";
  if (!type.known || type.string) return json_string(raw);
  if (type.null && (text == "null" || text == "None")) return "null";
  if (type.boolean && equals_ignoring_case(text, "true")) return "true";
  if (type.boolean && equals_ignoring_case(text, "false")) return "false";
  if (type.integer || type.number) {
    if (const auto number = number_json(text, !type.number)) return *number;
  }
  return json_string(raw);
}

bool is_certainly_string(const ParameterType& type, std::string_view start) {
  if (type.known && !type.string) return false;
  const bool structure = !type.known || type.object || type.array;
  if (!structure && !type.null) return true;
  const size_t first = start.find_first_not_of(kSpace);
  if (structure && (first == std::string_view::npos || start[first] == '{' || start[first] == '[')) return false;
  return !type.null || !std::string_view("null").starts_with(start);
}

}  // namespace lily
