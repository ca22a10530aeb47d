// What the program says about its own doings, on standard error. Results go to standard output by other ways
// (cli/output.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lily {

void log_verbose(bool on);  // whether log_debug says anything
void log_debug(const std::string& message);
void log_info(const std::string& message);
void log_warning(const std::string& message);
void log_error(const std::string& message);

/// `message` with control characters (a name from a file may hold some) made visible, so that it is one line on any
/// terminal.
std::string one_line(const std::string& message);

/// At most `bytes` of `text`, cut between two characters of UTF-8, and "…" where something was cut: for a message that
/// shows what was found, which may be of any length.
std::string shortened(std::string_view text, std::size_t bytes);

}  // namespace lily
