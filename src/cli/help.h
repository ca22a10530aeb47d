// Help texts, made from the command table and the options table.
#pragma once

#include <string>

#include "cli/command.h"

namespace lily::cli {

std::string general_help();
std::string command_help(const Command& command);
/// docs/OPTIONS.md.
std::string options_markdown();

}  // namespace lily::cli
