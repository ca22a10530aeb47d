// The CPU's limits, measured with the worker threads that the passes use.
#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "base/clock.h"

namespace lily {
namespace {

constexpr int kRepeats = 9;
constexpr std::int64_t kPieceBytes = std::int64_t(256) << 10;  // of one work unit
constexpr std::int64_t kRoundBytes = std::int64_t(160) << 20;  // read in one round
constexpr std::int64_t kRounds = 1000000;                        // of the dot-product loop: some milliseconds

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + std::ptrdiff_t(v.size() / 2), v.end());
  return v[v.size() / 2];
}

struct Reading {
  const ops::CpuProbe* probe;
  std::vector<const std::byte*> pieces;
};

// Pieces of the experts' codes, which are most of a model, for all rounds, spread over the whole of it: like a decode step, a round
// reads what no cache holds. A model too small for that is read again and again, from the cache where it fits one, as a decode
// step does.
std::vector<const std::byte*> sample(const Weights& weights) {
  std::vector<const std::byte*> all;
  for (int layer = 0; layer < weights.shape().layers; ++layer)
    for (Role role : {Role::expert_gate_proj, Role::expert_up_proj, Role::expert_down_proj}) {
      const Matrix& m = weights.get({role, layer});
      for (std::int64_t at = 0; at + kPieceBytes <= m.count * m.stack_bytes; at += kPieceBytes) all.push_back(m.data + at);
    }
  const std::size_t wanted = std::size_t(kRepeats * kRoundBytes / kPieceBytes);
  std::vector<const std::byte*> pieces;
  for (std::size_t i = 0; i < wanted && !all.empty(); ++i)
    pieces.push_back(all[i * 7919 % all.size()]);  // a prime stride walks through all before it repeats any
  return pieces;
}

void read_pieces(const void* context, std::int64_t begin, std::int64_t end, int) {
  const Reading& r = *static_cast<const Reading*>(context);
  for (std::int64_t i = begin; i < end; ++i) r.probe->read(r.pieces[std::size_t(i)], std::size_t(kPieceBytes));
}

}  // namespace

MachineLimits CpuBackend::measure_limits() {
  std::vector<double> read_rates, dot_rates;
  const Reading reading{&kernels_->probe, sample(weights_)};
  const auto per_round = std::int64_t(reading.pieces.size()) / kRepeats;
  const ThreadPool::Task dots{.units = pool_.threads(),
                              .grain = 1,
                              .run = [](const void* context, std::int64_t begin, std::int64_t end, int) {
                                for (; begin < end; ++begin) static_cast<const ops::CpuProbe*>(context)->int8_ops(kRounds);
                              },
                              .context = &kernels_->probe};
  const ThreadPool::Phase dot_phase{&dots, 1};
  const double dot_ops = double(kernels_->probe.int8_ops(1)) * double(kRounds) * pool_.threads();
  for (int i = 0; i < kRepeats; ++i) {
    const Reading round{reading.probe, {reading.pieces.begin() + i * per_round, reading.pieces.begin() + (i + 1) * per_round}};
    const ThreadPool::Task read{.units = per_round, .grain = 1, .run = read_pieces, .context = &round};
    const ThreadPool::Phase read_phase{&read, 1};
    auto start = Clock::now();
    pool_.run({&read_phase, 1});
    read_rates.push_back(double(per_round * kPieceBytes) / seconds_since(start));
    start = Clock::now();
    pool_.run({&dot_phase, 1});
    dot_rates.push_back(dot_ops / seconds_since(start));
  }
  return {.read_bytes_per_s = median(read_rates), .int8_ops_per_s = median(dot_rates)};
}

}  // namespace lily
