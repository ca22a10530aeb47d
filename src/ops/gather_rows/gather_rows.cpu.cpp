#include <string.h>

#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

std::int64_t gather_rows_units(const GatherRowsArgs& a) { return a.rows; }  // a unit is a row

void gather_rows_run(const GatherRowsArgs& a, std::int64_t begin, std::int64_t end, CpuScratch&) {
  for (std::int64_t i = begin; i < end; ++i) {
    memcpy(a.y + i * a.width, a.x + std::int64_t(a.row[i]) * a.width, std::size_t(a.width) * sizeof(float));
  }
}

}  // namespace lily::ops::LILY_ISA
