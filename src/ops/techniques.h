// Techniques: ways of computing that can be switched off by name (BackendOptions::off, `lily bench --ablate`), so that the effect
// of each is measured with everything else equal. A fusion is one (plan/fusion_table); the rest are choices inside kernels.
//
// A kernel's technique is three places: a field of Techniques (true: on), a row of the table in techniques.cpp, and the branch:
// the op's bind function copies pass.techniques, or one field, into its arguments and the kernel takes the other form where it is false.
// Both forms obey the same tests; a row says whether their bits are the same.
#pragma once

#include <string>
#include <vector>

namespace lily::ops {

/// What kernels may do; all on unless switched off. Reached through Pass::techniques when an op is bound.
struct Techniques {
  bool adaptive_tiles = true;         // row tile of the grouped expert products by rows an expert has
  bool packed_panels = true;          // 4-bit codes of matrix products taken apart in registers
  bool paired_columns = true;         // products and attention: two columns by one multiplication and two additions
  bool few_rows = true;               // products with few rows of input: codes as they lie, no panels
  bool grouped_experts = true;        // rows sorted by expert and multiplied group by group
  bool register_scan = true;          // gdn_scan: see its kernel
  bool amx_tiles = true;              // products and attention by AMX tile registers, where the processor has them
  bool packed_attention = true;       // all query heads of a KV head share one pass over the keys
  bool fixed_block_attention = true;  // decode: one row's keys are cut into blocks that the threads share
};

struct Technique {
  const char* name;       // "register-scan"
  bool prefill, decode;   // phases in which it does anything
  bool same_bits;         // switched off, every result has the same bits
  const char* does;       // one line: what it does, and what happens without it
  bool Techniques::*field;  // null: a fusion
};
/// Those that `backend` ("cpu", …) has: fusions first.
std::vector<Technique> techniques(const std::string& backend);

/// `off`, sorted by kind.
struct TechniqueChoice {
  Techniques kernels;
  std::vector<std::string> fusions_off;
};
/// Error(invalid_argument) for a name that `backend` has no technique of; it lists those there are.
TechniqueChoice without(const std::string& backend, const std::vector<std::string>& off);

}  // namespace lily::ops
