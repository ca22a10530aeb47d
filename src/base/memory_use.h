// What the process takes of the machine's memory.
#pragma once

#include <cstdint>

namespace lily {

/// The most that has been resident at once since the start, in bytes; pages of mapped files (weights) that were touched count.
std::int64_t peak_resident_bytes();
/// What is resident now, counted likewise; 0 where the system does not say.
std::int64_t resident_bytes();
/// What the machine has.
std::int64_t physical_memory_bytes();
/// What this process may use of it: less under a control group's limit.
std::int64_t usable_memory_bytes();

}  // namespace lily
