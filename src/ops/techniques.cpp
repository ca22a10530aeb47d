#include "ops/techniques.h"

#include <algorithm>

#include "base/error.h"
#include "plan/fusion_table.h"

namespace lily::ops {
namespace {

struct KernelRow {
  Technique technique;
  std::vector<std::string> backends;
};

const std::vector<KernelRow>& kernel_rows() {
  static const std::vector<KernelRow> rows = {
      {{"register-scan", true, false, true,
        "DeltaNet: a block of the state stays in the first-level cache, its sums in registers, through all tokens of a pass; "
        "without it every token walks the state where it lies in memory, twice",
        &Techniques::register_scan},
       {"cpu"}},
      {{"adaptive-tiles", true, false, true,
        "expert products: tiles of nearly equal height, as the rows of an expert fall; without it every tile has the full height",
        &Techniques::adaptive_tiles},
       {"cpu"}},
      {{"packed-panels", true, false, true,
        "matrix products: 4-bit weights stay two a byte until they are in registers, where that is faster; without it each is given a "
        "byte in memory first",
        &Techniques::packed_panels},
       {"cpu"}},
      {{"paired-columns", true, false, true,
        "matrix products and attention: an even and an odd column by one multiplication and two additions, where additions have ports of "
        "their own; without it two multiplications",
        &Techniques::paired_columns},
       {"cpu"}},
      {{"few-rows", true, false, true,
        "matrix products: 4-bit weights that meet few rows of input are multiplied as they lie, where a processor has AVX-512; without it "
        "they are laid out in panels first",
        &Techniques::few_rows},
       {"cpu"}},
      {{"grouped-experts", true, false, true,
        "expert products: all rows of an expert share one reading of its weights; without it each (token, expert) pair is multiplied "
        "alone",
        &Techniques::grouped_experts},
       {"cpu"}},
      {{"amx-tiles", true, false, false,
        "matrix products and attention: the tile registers of a processor that has AMX; without it, or on another processor, vector "
        "registers (products have the same bits, attention has not)",
        &Techniques::amx_tiles},
       {"cpu"}},
      {{"packed-attention", true, true, true,
        "attention: all query heads of a KV head share one pass over its keys and values; without it each head reads them anew",
        &Techniques::packed_attention},
       {"cpu"}},
      {{"fixed-block-attention", false, true, true,
        "attention: the threads share a row's keys, cut into ranges by position; without it one thread walks all keys of a KV head",
        &Techniques::fixed_block_attention},
       {"cpu"}},
  };
  return rows;
}

bool contains(const std::vector<std::string>& list, const std::string& x) {
  return std::find(list.begin(), list.end(), x) != list.end();
}

}  // namespace

std::vector<Technique> techniques(const std::string& backend) {
  std::vector<Technique> all;
  for (const plan::FusionRow& row : plan::fusion_table())
    if (contains(row.backends, backend)) all.push_back({row.name, true, true, row.same_bits, row.does, nullptr});
  for (const KernelRow& row : kernel_rows())
    if (contains(row.backends, backend)) all.push_back(row.technique);
  return all;
}

TechniqueChoice without(const std::string& backend, const std::vector<std::string>& off) {
  const std::vector<Technique> all = techniques(backend);
  TechniqueChoice choice;
  for (const std::string& name : off) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Technique& t) { return name == t.name; });
    if (found == all.end()) {
      std::string known;
      for (const Technique& t : all) known += (known.empty() ? "" : ", ") + std::string(t.name);
      throw Error(ErrorCode::invalid_argument, "the " + backend + " back end has no technique '" + name + "' (there are: " +
                                                   (known.empty() ? "none" : known) + ")");
    }
    if (found->field) choice.kernels.*found->field = false;
    else choice.fusions_off.push_back(name);
  }
  return choice;
}

}  // namespace lily::ops
