// The model written down as data.
#pragma once

#include "plan/op.h"

namespace lily::plan {

/// The ops of one pass of `phase` through a model of this shape, unfused, float32 throughout. One layer reads like the paper.
Plan emit(const ModelShape& shape, Phase phase);

}  // namespace lily::plan
