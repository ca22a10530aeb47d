// The words of the command line → Settings, as the options table says.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace lily::cli {

/// `words`: what follows the command's name. UsageError that names the word at fault.
Settings parse(const Command& command, std::vector<std::string> words);

}  // namespace lily::cli
