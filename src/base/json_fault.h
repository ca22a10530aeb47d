// JSON from files: parsed to a bounded depth (what walks a document later may recurse), and where it is no JSON, why,
// in words of our own: the libraries' messages name their own insides.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace lily {

/// "not JSON: byte 17 (line 2, column 5): expected ',' or '}', found 'x'". Bytes, lines and columns count from 1.
/// `reported`: where the parser stopped, as nlohmann::json tells it (the number of bytes it had read). Of any text that
/// it refuses this finds the fault at or before that byte.
std::string json_fault(std::string_view text, std::size_t reported);

/// Objects and lists within each other, at most.
inline constexpr std::size_t kMaxJsonDepth = 64;

/// Parses the text of a file. Error(`code`) that names the file and the fault; also beyond kMaxJsonDepth.
nlohmann::json parse_json_file(std::string_view text, const std::string& file, ErrorCode code = ErrorCode::corrupt);
/// The same with keys in their order.
nlohmann::ordered_json parse_ordered_json_file(std::string_view text, const std::string& file,
                                               ErrorCode code = ErrorCode::corrupt);
/// Null where the text is no JSON or nested deeper than kMaxJsonDepth: for what is believed only when it is whole.
nlohmann::json parse_json_or_null(std::string_view text);

}  // namespace lily
