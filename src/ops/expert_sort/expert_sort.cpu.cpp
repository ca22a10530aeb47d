#include "ops/cpu_units.h"

namespace lily::ops::LILY_ISA {

std::int64_t expert_sort_units(const ExpertSortArgs&) { return 1; }  // a counting sort: one pass to count, one to place

void expert_sort_run(const ExpertSortArgs& a, std::int64_t begin, std::int64_t end, CpuScratch&) {
  if (begin == end) return;
  const std::int64_t pairs = std::int64_t(a.rows) * a.k;
  std::int32_t *offsets = a.groups, *list = a.groups + a.experts + 1;
  for (int e = 0; e <= a.experts; ++e) offsets[e] = 0;
  for (std::int64_t i = 0; i < pairs; ++i) ++offsets[a.expert[i] + 1];
  for (int e = 0; e < a.experts; ++e) offsets[e + 1] += offsets[e];
  for (std::int64_t i = 0; i < pairs; ++i) list[offsets[a.expert[i]]++] = std::int32_t(i);
  // Each offset has moved to its group's end, which is where the next one began.
  for (int e = a.experts; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
}

}  // namespace lily::ops::LILY_ISA
