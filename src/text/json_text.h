// JSON as the chat template of the reference sees it: Python values, written by Python's json.dumps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fault.h"

namespace lily {

/// Subtype of a binary value that holds the digits of a whole number beyond 64 bits (see parse_json).
inline constexpr uint8_t kBigIntegerSubtype = 0x49;

/// Parses JSON text. It differs from nlohmann's own parser in three ways: a whole number beyond 64 bits keeps its
/// digits (as a binary value with the subtype above, where the library would round it to a double); nesting beyond
/// `max_depth` is an error; an object with many keys takes linear time. Of equal keys the last value counts, in the
/// first one's place. Throws `invalid_argument` that says where the
/// text stops being JSON and what was expected there; for a number beyond the range of a double and for what is nested
/// too deep the message begins with the path of the value.
nlohmann::ordered_json parse_json(std::string_view text, size_t max_depth = kMaxJsonDepth);

/// The member of `object` under `key`; null when it has none or is no object.
const nlohmann::ordered_json& member(const nlohmann::ordered_json& object, const char* key);

/// Names of the members of `object` beyond `known`; null is as good as absent. None when it is no object.
std::vector<std::string> members_beyond(const nlohmann::ordered_json& object, std::initializer_list<std::string_view> known);

/// What a value is, in JSON's words: "number", "object", …
std::string kind_of(const nlohmann::ordered_json& value);

/// Makes a value's path ("tools[0].function") that of its member; false, and nothing added, where `key` is no plain word
/// or the path would be too long for a message.
bool extend_path(std::string& path, std::string_view key);
bool extend_path(std::string& path, size_t index);

/// json.dumps(value, ensure_ascii=False): ", " and ": " between things, keys in order, numbers as Python writes them.
/// Throws `invalid_argument` on nesting beyond 256.
std::string python_json(const nlohmann::ordered_json& value);

/// Appends `text` as the inside of a JSON string, without the quotes; characters beyond ASCII stay as they are.
void append_json_escaped(std::string& out, std::string_view text);

/// Python's repr of a float: 1.0, 1e-05, 1e+16, inf.
std::string python_float(double value);

}  // namespace lily
