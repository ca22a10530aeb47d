// Why a text is no JSON, in words of our own: the libraries' messages name their own insides.
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

/// Parses the text of a file. Error(`code`) that names the file and the fault.
nlohmann::json parse_json_file(std::string_view text, const std::string& file, ErrorCode code = ErrorCode::corrupt);

}  // namespace lily
