#include "plan/compile.h"

#include "plan/emit.h"
#include "plan/fusion_table.h"
#include "plan/hazards.h"
#include "plan/lower.h"
#include "plan/validate.h"

namespace lily::plan {

Plan compile(const Weights& weights, Phase phase, const CompileOptions& options) {
  Plan plan = emit(weights.shape(), phase);
  validate(plan);
  plan = fuse(std::move(plan), options.backend, options.fusions_off);
  plan = lower_activations(std::move(plan), weights, options.activations);
  validate(plan);
  schedule(plan);
  check_stages(plan);
  return plan;
}

}  // namespace lily::plan
