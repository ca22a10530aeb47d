#include "ops/linear/dot_ref.h"

#include <cmath>

namespace lily::ops {
namespace {

// std::fma gives the same bits everywhere; it is one instruction where the processor has it and a slow call where not.
// R inputs at a time, because one alone waits for its own additions.
template <int R>
[[gnu::always_inline]] inline void dots(const float* w, const float* const* x, std::int64_t n, float* out) {
  float lane[R][4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int r = 0; r < R; ++r)
      for (int j = 0; j < 4; ++j) lane[r][j] = std::fma(w[i + j], x[r][i + j], lane[r][j]);
  for (int j = 0; i < n; ++i, ++j)
    for (int r = 0; r < R; ++r) lane[r][j] = std::fma(w[i], x[r][i], lane[r][j]);
  for (int r = 0; r < R; ++r) out[r] = (lane[r][0] + lane[r][2]) + (lane[r][1] + lane[r][3]);
}

[[gnu::always_inline]] inline void all_dots(const float* w, std::span<const float* const> x, std::int64_t n, float* out) {
  std::size_t r = 0;
  for (; r + 4 <= x.size(); r += 4) dots<4>(w, x.data() + r, n, out + r);
  for (; r < x.size(); ++r) dots<1>(w, x.data() + r, n, out + r);
}

#if defined(__x86_64__)
[[gnu::target("fma")]] void all_dots_fma(const float* w, std::span<const float* const> x, std::int64_t n, float* out) {
  all_dots(w, x, n, out);
}
#endif

}  // namespace

void dots_ref(const float* w, std::span<const float* const> x, std::int64_t n, float* out) {
#if defined(__x86_64__)
  static const bool has_fma = __builtin_cpu_supports("fma");
  if (has_fma) return all_dots_fma(w, x, n, out);
#endif
  all_dots(w, x, n, out);
}

}  // namespace lily::ops
