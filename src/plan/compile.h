// From a model to the plan that a back end replays: emit, fuse, lower, validate, schedule.
#pragma once

#include <span>
#include <string>

#include "plan/op.h"

namespace lily::plan {

struct CompileOptions {
  std::string backend = "reference";  // whose fusions apply
  Activations activations = Activations::f32;
  std::span<const std::string> fusions_off = {};
};
Plan compile(const Weights& weights, Phase phase, const CompileOptions& options);

}  // namespace lily::plan
