// Arithmetic: which matrix products read integers.
#pragma once

#include "plan/op.h"

namespace lily::plan {

/// Makes every matrix product over a quantised weight read its input as quantize_rows leaves it, and puts that op behind whatever
/// writes the input. `activations` says how exact: f32 leaves the plan as it is (--exact); int16: two terms; int8: one,
/// where the router, the gates and lm_head still read two terms, since they are small and steer the rest.
/// Products over plain weights, and inputs whose width is no multiple of kQuantGroup, stay float32.
Plan lower_activations(Plan plan, const Weights& weights, Activations activations);

}  // namespace lily::plan
