// Another engine, run as a command between Lily's own repetitions.
#pragma once

#include <string>
#include <string_view>

#include "plan/op.h"

namespace lily::bench {

/// `command` for one row: {n} is the row's length, {phase} its phase, {prefill} n in prefill and 0 in decode, {context}
/// n in decode and 0 in prefill, {steps} the decode steps and 0 in prefill. UsageError-like Error(invalid_argument) for
/// another word in braces of letters, or when none of {n}, {prefill} and {context} occurs.
std::string peer_command(const std::string& command, plan::Phase phase, int n, int steps);

/// The tokens a second that a program printed. The last of these that is there:
///   1. a JSON field "avg_ts": NUMBER (llama-bench -o json);
///   2. the column called t/s of a table made of bars (llama-bench's own), its last line;
///   3. a number before t/s, tok/s, tokens/s or tokens per second.
/// 1 goes before 2, 2 before 3. Negative: there is no such figure, or it is not positive.
double peer_figure(std::string_view output);

/// Runs the command by the shell and reads the figure from what it writes to standard output and error.
/// Error(invalid_argument) that quotes the command and its last line when it fails or prints no figure.
double run_peer(const std::string& command);

}  // namespace lily::bench
