// The plan as a table for people: `lily inspect --plan`.
#pragma once

#include <string>

#include "plan/cost.h"

namespace lily::plan {

/// One line a stage: its ops with what they read and write, bytes and multiply-adds of the stage. `layers` > 0 stops after so many
/// layers of each kind (all look alike).
std::string explain(const Plan& plan, const Weights& weights, const CostInput& in, bool all_layers);

/// The same as JSON: {phase, stages, ops: [{name, kind, stage, reads, writes, weights, parts, bytes, multiply_adds}], buffers}.
std::string explain_json(const Plan& plan, const Weights& weights, const CostInput& in);

}  // namespace lily::plan
