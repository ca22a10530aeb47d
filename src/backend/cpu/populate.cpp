#include "backend/cpu/populate.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

namespace lily {
namespace {

constexpr std::uintptr_t kPiece = std::uintptr_t(16) << 20;  // between looks at `stop`
constexpr int kThreads = 2;                                  // faults of one file scale no further

bool populate(std::uintptr_t begin, std::uintptr_t end) {
#if defined(__linux__)
  constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, which older headers lack
  return madvise(reinterpret_cast<void*>(begin), end - begin, kPopulateRead) == 0;
#else
  return madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED) == 0;
#endif
}

}  // namespace

std::vector<Populate::Range> Populate::ranges(const Weights& weights) {
  const auto page = std::uintptr_t(sysconf(_SC_PAGESIZE));
  std::vector<Range> all;
  auto add = [&](const std::byte* p, std::int64_t bytes) {
    if (!p || bytes <= 0) return;
    const auto at = reinterpret_cast<std::uintptr_t>(p);
    all.emplace_back(at / page * page, (at + std::uintptr_t(bytes) + page - 1) / page * page);
  };
  for (int layer = -1; layer < weights.shape().layers; ++layer)
    for (int role = 0; role < int(Role::count_); ++role) {
      if (!weights.has({Role(role), layer})) continue;
      const Matrix& m = weights.get({Role(role), layer});
      add(m.data, m.count * m.rows * m.row_bytes);
      if (!m.quantized()) continue;
      add(m.scales, m.count * m.rows * m.scale_row_bytes);
      add(m.biases, m.count * m.rows * m.scale_row_bytes);
    }
  std::sort(all.begin(), all.end());
  std::vector<Range> merged;
  for (const Range& r : all) {
    if (!merged.empty() && r.first <= merged.back().second)
      merged.back().second = std::max(merged.back().second, r.second);
    else
      merged.push_back(r);
  }
  return merged;
}

Populate::Populate(const Weights& weights) {
  const double memory = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  if (double(weights.bytes()) > 0.9 * memory) return;
  std::vector<Range> pieces;
  for (auto [begin, end] : ranges(weights))
    for (; begin < end; begin += kPiece) pieces.emplace_back(begin, std::min(end, begin + kPiece));
  try {
    for (int t = 0; t < kThreads; ++t)
      threads_.emplace_back([this, pieces, t] {
        for (std::size_t i = std::size_t(t); i < pieces.size() && !stop_.load(std::memory_order_relaxed); i += kThreads)
          if (!populate(pieces[i].first, pieces[i].second)) return;
      });
  } catch (const std::system_error&) {  // no thread to be had: passes fault as they go; what was started is joined as ever
  }
}

void Populate::wait() {
  for (std::thread& t : threads_) t.join();
  threads_.clear();
}

Populate::~Populate() {
  stop_.store(true, std::memory_order_relaxed);
  wait();
}

}  // namespace lily
