// Which instruction sets this build has kernels for, which of them this machine runs, which is used.
#pragma once

#include <string>
#include <vector>

#include "ops/cpu_kernels.h"

namespace lily {

/// Names of the built kernel sets that this machine can run, best first.
std::vector<std::string> available_isas();
/// The set called `isa`, or the best one for an empty name. Error(unsupported) names what there is.
const ops::CpuKernels& cpu_kernels(const std::string& isa);

}  // namespace lily
