// Proof that a plan computes from what was computed: run on every plan before anything is built from it.
#pragma once

#include "plan/op.h"

namespace lily::plan {

/// Error(internal) naming the op and the buffer when: a buffer is read that nothing wrote before (inputs and state excepted), an
/// input is written, two ops have one name, an id is out of range, nothing writes the logits, a fused op's parts read or write
/// something outside that the op does not declare, or a state buffer belongs to another layer than its op.
void validate(const Plan& plan);

}  // namespace lily::plan
