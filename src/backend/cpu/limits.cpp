// The CPU's limits, measured with the worker threads that the passes use.
#include <algorithm>
#include <chrono>

#include "backend/cpu/cpu_backend.h"

namespace lily {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRepeats = 5;
constexpr std::int64_t kSampleBytes = std::int64_t(768) << 20;  // of weights: beyond most caches
constexpr std::int64_t kPieceBytes = std::int64_t(1) << 20;     // of one work unit
constexpr std::int64_t kRounds = 20000;                         // of the dot-product loop: a few milliseconds

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Reading {
  const ops::CpuProbe* probe;
  std::vector<const std::byte*> pieces;
};

// Pieces of the experts' codes, which are most of a model, from the end of the network: what a pass reads last is likeliest to be
// in memory.
std::vector<const std::byte*> sample(const Weights& weights) {
  std::vector<const std::byte*> pieces;
  for (int layer = weights.shape().layers - 1; layer >= 0; --layer)
    for (Role role : {Role::expert_gate_proj, Role::expert_up_proj, Role::expert_down_proj}) {
      const Matrix& m = weights.get({role, layer});
      const std::int64_t bytes = m.count * m.stack_bytes;
      for (std::int64_t at = 0; at + kPieceBytes <= bytes; at += kPieceBytes) {
        if (std::int64_t(pieces.size()) * kPieceBytes >= kSampleBytes) return pieces;
        pieces.push_back(m.data + at);
      }
    }
  return pieces;
}

void read_pieces(const void* context, std::int64_t begin, std::int64_t end, int) {
  const Reading& r = *static_cast<const Reading*>(context);
  for (std::int64_t i = begin; i < end; ++i) r.probe->read(r.pieces[std::size_t(i)], std::size_t(kPieceBytes));
}

}  // namespace

MachineLimits CpuBackend::measure_limits() {
  MachineLimits limits;
  const Reading reading{&kernels_.probe, sample(weights_)};
  const ThreadPool::Task read{.units = std::int64_t(reading.pieces.size()), .grain = 4, .run = read_pieces, .context = &reading};
  const ThreadPool::Phase read_phase{&read, 1};
  const ThreadPool::Task dots{.units = pool_.threads(),
                              .grain = 1,
                              .run = [](const void* context, std::int64_t begin, std::int64_t end, int) {
                                for (; begin < end; ++begin) static_cast<const ops::CpuProbe*>(context)->int8_ops(kRounds);
                              },
                              .context = &kernels_.probe};
  const ThreadPool::Phase dot_phase{&dots, 1};
  const double dot_ops = double(kernels_.probe.int8_ops(1)) * double(kRounds) * pool_.threads();
  for (int i = 0; i < kRepeats; ++i) {
    auto start = Clock::now();
    pool_.run({&read_phase, 1});
    // The first round brings the sample into memory.
    if (i > 0 && read.units > 0)
      limits.read_bytes_per_s = std::max(limits.read_bytes_per_s, double(read.units * kPieceBytes) / seconds_since(start));
    start = Clock::now();
    pool_.run({&dot_phase, 1});
    limits.int8_ops_per_s = std::max(limits.int8_ops_per_s, dot_ops / seconds_since(start));
  }
  return limits;
}

}  // namespace lily
