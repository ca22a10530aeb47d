// The machine that a bench runs on.
#pragma once

#include <cstdint>
#include <string>

namespace lily::bench {

/// "AMD EPYC 9R14, 2 CPUs, 23.4 GB memory": the processor's own name where the system tells it.
std::string machine_name();

/// Bytes that a program may use without anything being swapped out, caches of files counted as free; 0: unknown.
std::int64_t available_memory();

}  // namespace lily::bench
