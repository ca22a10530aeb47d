// Fusion as a table: a row is a fused op, the ops that it replaces, the back ends that have it. A row that is switched off by name
// is an ablation. Adding a fusion is adding a row (docs/ADDING_AN_OP.md).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/op.h"

namespace lily::plan {

struct FusionRow {
  const char* name;            // what the command line switches off: "fused-expert-in"
  OpKind fused;
  std::vector<OpKind> parts;   // in order; the last one's place is where the fused op stands
  std::vector<std::string> backends;
  bool same_bits;              // as its parts one by one
  const char* does;            // one line for docs/FUSIONS.md
};
std::span<const FusionRow> fusion_table();

/// Replaces every occurrence of each row that `backend` has and `off` does not name. Parts of one occurrence belong to one layer;
/// what they hand to each other is read by nobody else. Error(invalid_argument) for a name in `off` that no row has.
Plan fuse(Plan plan, const std::string& backend, std::span<const std::string> off);

/// docs/FUSIONS.md
std::string fusions_markdown();

}  // namespace lily::plan
