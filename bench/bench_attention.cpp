// bench_attention: attention at the full model's sizes against the machine's limits, measured in turn with them in one run.
//
//   bench_attention [--isa avx512vnni] [--threads 2] [--rounds 7] [--only prefill|decode] [--keys N]
//
// 16 query heads, 2 KV heads of 256 channels, 10 layers one after another. Prefill: a chunk of 512 rows that ends at N keys, in
// core-milliseconds a token and multiply-adds a second; beside it the instruction set's dot products a second (the loop of
// `run --stats`), each of which is one vector instruction. Decode: one row, bytes of K and V a second against a plain read of the
// same memory. Each round measures limit, kernel, limit; medians are printed. The clock is the one on the wall: keep the machine quiet.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/aligned_memory.h"
#include "backend/cpu/dispatch.h"
#include "base/thread_pool.h"

namespace {
using namespace lily;
using namespace lily::ops;

constexpr int kLayers = 10, kHeads = 16, kKvHeads = 2, kDim = 256, kChunk = 512;

struct Machine {
  Machine(const CpuKernels& k, int threads) : kernels(k), pool(threads), memory(std::size_t(threads) * kCpuScratchBytes) {}
  const CpuKernels& kernels;
  ThreadPool pool;
  AlignedMemory memory;

  /// Seconds that the units take, dealt out as the back end does.
  double run(std::int64_t units, const std::function<void(std::int64_t, std::int64_t, CpuScratch&)>& f) {
    struct Context {
      Machine* machine;
      const std::function<void(std::int64_t, std::int64_t, CpuScratch&)>* f;
    } const context{this, &f};
    const ThreadPool::Task task{.units = units,
                                .grain = batch_grain(units, pool.threads()),
                                .run = [](const void* c, std::int64_t begin, std::int64_t end, int thread) {
                                  const auto& x = *static_cast<const Context*>(c);
                                  CpuScratch scratch{x.machine->memory.data() + std::size_t(thread) * kCpuScratchBytes, kCpuScratchBytes};
                                  (*x.f)(begin, end, scratch);
                                },
                                .context = &context};
    const ThreadPool::Phase phase{&task, 1};
    const auto start = std::chrono::steady_clock::now();
    pool.run({&phase, 1});
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  double vector_dots_per_s() {
    constexpr std::int64_t kLoops = 200000, kPieces = 8;
    const double one = double(kernels.probe.int8_ops(1)) / (std::string(kernels.isa).starts_with("avx512") ? 128 : 64);
    const double s = run(pool.threads() * kPieces, [&](std::int64_t b, std::int64_t e, CpuScratch&) {
      for (; b < e; ++b) kernels.probe.int8_ops(kLoops);
    });
    return one * double(kLoops * kPieces * pool.threads()) / s;
  }
};

// One conversation whose cache holds `keys` positions.
struct Conversation {
  explicit Conversation(std::int64_t keys) : state(layout()) {
    state.reserve(keys);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> row(std::size_t(kKvHeads * kDim) * kKvBlockTokens);
    for (float& x : row) x = normal(random);
    for (std::int64_t p = 0; p < keys; p += kKvBlockTokens) {
      const SegmentRows seg{&state, p, 0, int(std::min<std::int64_t>(kKvBlockTokens, keys - p))};
      for (int a = 0; a < kLayers; ++a) kv_append_ref({row.data(), row.data(), {&seg, 1}, a, kKvHeads, kDim});
    }
  }
  static StateLayout layout() {
    ModelShape s;
    s.layers = kLayers;
    s.layer_kinds.assign(kLayers, LayerKind::full_attention);
    s.kv_heads = kKvHeads;
    s.head_dim = kDim;
    return StateLayout(s, DType::bf16);
  }
  SequenceState state;
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

struct Rates {
  double kernel, limit, share;
};
Rates in_turn(int rounds, const std::function<double()>& limit, const std::function<double()>& kernel) {
  std::vector<double> k, l, share;
  kernel();
  for (int i = 0; i < rounds; ++i) {
    const double before = limit(), rate = kernel(), after = limit();
    k.push_back(rate), l.push_back((before + after) / 2), share.push_back(rate / l.back());
  }
  return {median(k), median(l), median(share)};
}

std::vector<float> queries(int rows) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> q(std::size_t(rows) * kHeads * kDim);
  for (float& x : q) x = normal(random);
  return q;
}

void prefill(Machine& m, std::int64_t keys, int rounds) {
  Conversation c(keys);
  const int rows = int(std::min<std::int64_t>(kChunk, keys));
  const std::vector<float> q = queries(rows);
  std::vector<float> o(q.size());
  const SegmentRows seg{&c.state, keys - rows, 0, rows};
  const double sees = double(keys) - 0.5 * (rows - 1);  // keys of a row, in the mean
  const double macs = 2.0 * sees * kHeads * kDim * rows * kLayers;
  const Rates r = in_turn(rounds, [&] { return m.vector_dots_per_s(); }, [&] {
    double s = 0;
    for (int layer = 0; layer < kLayers; ++layer) {
      const AttentionArgs a{q.data(), o.data(), {&seg, 1}, layer, rows, kHeads, kKvHeads, kDim, false};
      s += m.run(m.kernels.attention.units(a), [&](std::int64_t b, std::int64_t e, CpuScratch& x) { m.kernels.attention.run(a, b, e, x); });
    }
    return macs / s;
  });
  std::printf("prefill %6lld keys: %6.3f core-ms a token, %6.1f GMAC/s = %5.1f a vector dot product (%.2f G/s)\n", (long long)keys,
              macs / r.kernel / rows * 1e3 * m.pool.threads(), r.kernel / 1e9, r.share, r.limit / 1e9);
}

void decode(Machine& m, std::int64_t keys, int rounds) {
  Conversation c(keys);
  const std::vector<float> q = queries(1);
  std::vector<float> o(q.size());
  const SegmentRows seg{&c.state, keys - 1, 0, 1};
  AttentionArgs a{q.data(), o.data(), {&seg, 1}, 0, 1, kHeads, kKvHeads, kDim, true};
  const AlignedMemory partial(std::size_t(attention_partial_floats(a)) * sizeof(float));
  std::vector<std::int32_t> finished(kKvHeads, 0);
  a.partial = reinterpret_cast<float*>(partial.data());
  a.finished = finished.data();
  const double bytes = double(c.state.layout.kv_block_bytes) / kKvBlockTokens * double(keys);
  const int repeat = int(std::max<std::int64_t>(1, 16384 / keys));
  const auto read = [&] {
    const std::size_t piece = std::size_t(c.state.layout.kv_head_bytes);
    const std::int64_t pieces = c.state.layout.kv_block_bytes / std::int64_t(piece), blocks = keys / kKvBlockTokens;
    double s = 0;
    for (int i = 0; i < repeat; ++i)
      s += m.run(pieces * blocks, [&](std::int64_t b, std::int64_t e, CpuScratch&) {
        for (; b < e; ++b) m.kernels.probe.read(c.state.block_data[std::size_t(b % blocks)] + std::size_t(b / blocks) * piece, piece);
      });
    return double(repeat) * double(pieces * blocks) * double(piece) / s;
  };
  const Rates r = in_turn(rounds, read, [&] {
    double s = 0;
    for (int i = 0; i < repeat; ++i)
      for (a.attention_layer = 0; a.attention_layer < kLayers; ++a.attention_layer)
        s += m.run(m.kernels.attention.units(a), [&](std::int64_t b, std::int64_t e, CpuScratch& x) { m.kernels.attention.run(a, b, e, x); });
    return repeat * bytes / s;
  });
  const double dots = m.vector_dots_per_s();  // 16 multiply-adds a 4 bytes of K or V: a 64-byte line takes 16 vector fmas of 16
  std::printf("decode %7lld keys: %5.1f GB/s of %5.1f read: %5.1f %%; %.2f G/s of %.2f vector dot products\n", (long long)keys,
              r.kernel / 1e9, r.limit / 1e9, 100 * r.share, r.kernel / 4e9, dots / 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  std::string isa, only;
  int threads = 2, rounds = 7;
  std::vector<std::int64_t> keys;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    ++i;
    if (flag == "--isa") isa = value;
    else if (flag == "--only") only = value;
    else if (flag == "--threads") threads = std::max(1, std::atoi(value.c_str()));
    else if (flag == "--rounds") rounds = std::max(1, std::atoi(value.c_str()));
    else if (flag == "--keys") keys.push_back(std::max(256, std::atoi(value.c_str())));
    else return std::fprintf(stderr, "bench_attention: unknown flag %s (see the head of bench/bench_attention.cpp)\n", flag.c_str()), 1;
  }
  Machine m(cpu_kernels(isa), threads);
  std::printf("%s, %d threads\n", m.kernels.isa, threads);
  const bool given = !keys.empty();
  if (only != "decode")
    for (std::int64_t n : given ? keys : std::vector<std::int64_t>{512, 4096, 16384}) prefill(m, n, rounds);
  if (only != "prefill")
    for (std::int64_t n : given ? keys : std::vector<std::int64_t>{4096, 16384, 65536, 131072}) decode(m, n, rounds);
}
