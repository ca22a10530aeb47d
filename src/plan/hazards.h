// Stages: which ops may run at once.
#pragma once

#include "plan/op.h"

namespace lily::plan {

/// Sets op.stage and plan.stages: an op's stage is one after the last stage that holds an op it must wait for (it reads what that
/// one writes, or writes what that one reads or writes), and orders the ops by stage, keeping the order within one.
/// A back end puts one barrier between stages and none inside.
void schedule(Plan& plan);

/// Error(internal) when two ops of one stage touch the same buffer and one of them writes it.
void check_stages(const Plan& plan);

}  // namespace lily::plan
