// Names that nobody else has.
#pragma once

#include <string>
#include <string_view>

namespace lily {

/// `prefix` and kUniqueDigits hexadecimal digits: unique within the process, not to be guessed from outside it.
inline constexpr int kUniqueDigits = 24;
std::string unique_id(std::string_view prefix);

}  // namespace lily
