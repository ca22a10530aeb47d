// bench_matmul: how near the matrix kernels come to the machine's limits, measured in turn with them in one run.
//
//   bench_matmul [--isa avx512vnni] [--threads 2] [--rounds 7] [--only gemv|gemm|experts] [--filter TEXT] [--int16] [--wall] [--resident]
//                [--ablate TECHNIQUE]… [--offset BYTES]
//
// Decode: bytes of weights a second against a plain read of the same memory. Prefill: multiply-adds ×2 a second against a loop
// of nothing but the instruction set's dot products. Each round measures limit, kernel, limit; a share is the kernel over the
// mean of the two, and the median of the rounds is printed. Time is the threads' mean CPU time, not the clock on the wall: on a
// shared machine a thread that waits for its turn says nothing about a kernel. (--wall: the wall clock; --resident: all experts, or matrices of gemv, are one,
// whose weights stay in the cache: what is left is arithmetic. --ablate: without this technique, see lily bench --help. --offset: where in a line of 64 bytes codes begin, as
// a checkpoint may have them; 0 when nothing is said.)
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include <sys/mman.h>
#include <time.h>

#include "ops/expert_sort/expert_sort.h"
#include "backend/cpu/dispatch.h"
#include "base/thread_pool.h"
#include "ops/matmul_kernels.h"

namespace {
using namespace lily;
using namespace lily::ops;
using namespace lily::ops::testing;

struct Options {
  std::string isa, only, filter;
  int threads = 2, rounds = 7, offset = 0;
  bool int16 = false, wall = false, resident = false;
  Techniques techniques;
};

double now(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// Workers that spin between jobs.
class Pool {
 public:
  Pool(int threads, bool wall) : scratch_(std::size_t(threads)), wall_(wall) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  }
  ~Pool() {
    stop_ = true;
    ++generation_;
    for (auto& w : workers_) w.join();
  }
  /// Seconds it took.
  double run(std::int64_t units, const std::function<void(std::int64_t, CpuScratch&)>& f) {
    const double start = now(CLOCK_MONOTONIC);
    cpu_nanoseconds_ = 0;
    f_ = &f, units_ = units, busy_ = int(workers_.size());
    ++generation_;
    drain(0);
    while (busy_.load() > 0) std::this_thread::yield();
    return wall_ ? now(CLOCK_MONOTONIC) - start : 1e-9 * double(cpu_nanoseconds_.load()) / threads();
  }
  int threads() const { return int(workers_.size()) + 1; }

 private:
  void drain(int i) {
    const double start = now(CLOCK_THREAD_CPUTIME_ID);
    // A thread walks a share of its own, as the back end's do: what it asks for ahead is its own next unit.
    for (std::int64_t u = units_ * i / threads(); u < units_ * (i + 1) / threads(); ++u) (*f_)(u, scratch_[std::size_t(i)].view);
    cpu_nanoseconds_ += std::int64_t(1e9 * (now(CLOCK_THREAD_CPUTIME_ID) - start));
  }
  void work(int i) {
    for (int seen = 0;;) {
      while (generation_.load() == seen) std::this_thread::yield();
      ++seen;
      if (stop_) return;
      drain(i);
      --busy_;
    }
  }
  std::vector<Scratch> scratch_;
  bool wall_;
  std::atomic<std::int64_t> cpu_nanoseconds_{0};
  std::vector<std::thread> workers_;
  const std::function<void(std::int64_t, CpuScratch&)>* f_ = nullptr;
  std::int64_t units_ = 0;
  std::atomic<int> generation_{0}, busy_{0};
  std::atomic<bool> stop_{false};
};

// Operations a second of all threads, and bytes a second read by all threads, by the loops that `run --stats` measures with.
double peak_rate(Pool& pool, const std::string& isa) {
  constexpr std::int64_t kLoops = 400000;
  const CpuProbe& probe = cpu_kernels(isa).probe;
  const double s = pool.run(pool.threads(), [&](std::int64_t, CpuScratch&) { probe.int8_ops(kLoops); });
  return double(pool.threads()) * double(probe.int8_ops(1)) * kLoops / s;
}

double read_rate(Pool& pool, const std::string& isa, const std::byte* p, std::int64_t bytes) {
  constexpr std::int64_t kPiece = 1 << 18;
  const CpuProbe& probe = cpu_kernels(isa).probe;
  const double s = pool.run(bytes / kPiece, [&](std::int64_t u, CpuScratch&) { probe.read(p + u * kPiece, kPiece); });
  return double(bytes / kPiece * kPiece) / s;
}

// Memory in huge pages where the system lends them, as the back end's buffers are.
struct Buffer {
  explicit Buffer(std::int64_t n) : bytes((std::size_t(n) + kHuge - 1) / kHuge * kHuge + kHuge) {
    whole = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (whole == MAP_FAILED) std::abort();
    data = static_cast<std::byte*>(whole) + (kHuge - reinterpret_cast<std::uintptr_t>(whole) % kHuge);
#if defined(__linux__)
    madvise(data, bytes - kHuge, MADV_HUGEPAGE);
#endif
  }
  ~Buffer() { munmap(whole, bytes); }
  Buffer(const Buffer&) = delete;
  float* floats() const { return reinterpret_cast<float*>(data); }
  static constexpr std::size_t kHuge = 2 << 20;
  std::size_t bytes;
  void* whole;
  std::byte* data;
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// One line: the rate, the limit, the share.
void report(const Options& o, const std::string& name, const char* unit, const std::function<double()>& limit,
            const std::function<double()>& kernel) {
  if (name.find(o.filter) == std::string::npos) return;
  std::vector<double> rates, limits, shares, peaks;
  kernel();
  for (int i = 0; i < o.rounds; ++i) {
    const double before = limit(), rate = kernel(), after = limit();
    peaks.push_back(std::max(before, after));
    rates.push_back(rate), limits.push_back((before + after) / 2), shares.push_back(rate / limits.back());
  }
  const auto most = [](const std::vector<double>& v) { return *std::max_element(v.begin(), v.end()); };
  std::printf("%-32s %7.1f %s of %7.1f  share %5.1f %% (%.1f … %.1f)  best %.1f of %.1f: %.1f %%\n", name.c_str(),
              median(rates) / 1e9, unit, median(limits) / 1e9, 100 * median(shares),
              100 * *std::min_element(shares.begin(), shares.end()), 100 * most(shares), most(rates) / 1e9, most(peaks) / 1e9,
              100 * most(rates) / most(peaks));
  std::fflush(stdout);
}

template <class Args>
double run_units(Pool& pool, const CpuKernel<Args>& kernel, const Args& a) {
  const std::int64_t units = kernel.units(a), grain = batch_grain(units, pool.threads());
  return pool.run((units + grain - 1) / grain, [&](std::int64_t b, CpuScratch& s) {
    kernel.run(a, b * grain, std::min(units, (b + 1) * grain), s);
  });
}

// A stack of 4-bit matrices of group 64; codes from a cheap generator, scales plausible.
struct Stack {
  Buffer memory;  // huge pages: so a checkpoint is mapped
  Matrix m;
  Stack(const Options& o, std::int64_t count, std::int64_t rows, std::int64_t cols, int bits = 4)
      : memory(count * rows * (cols * bits / 8 + 2 * (cols / 64 * 2)) + 64) {
    m.count = count, m.rows = rows, m.cols = cols, m.bits = bits, m.group = 64;
    m.row_bytes = cols * bits / 8, m.stack_bytes = rows * m.row_bytes;
    m.scale_row_bytes = cols / 64 * 2, m.scale_stack_bytes = rows * m.scale_row_bytes;
    const std::int64_t codes = count * m.stack_bytes, scales = count * m.scale_stack_bytes;
    std::uint64_t s = 88172645463325252ull;
    std::byte* at = memory.data + o.offset;
    for (std::int64_t i = 0; i < codes; i += 8) {
      s ^= s << 13, s ^= s >> 7, s ^= s << 17;
      std::memcpy(at + i, &s, 8);
    }
    for (std::int64_t i = 0; i < 2 * scales; i += 2) {
      const std::uint16_t h = float_to_bf16(i < scales ? 0.004f : -0.03f);
      std::memcpy(at + codes + i, &h, 2);
    }
    m.data = at, m.scales = m.data + codes, m.biases = m.scales + scales;
  }
};

struct Input {
  QuantLayout layout;
  Buffer q;
  Input(const Isa& isa, std::int64_t rows, std::int64_t cols, int terms)
      : layout{int(cols), terms}, q(rows * layout.row_bytes()) {
    const auto x = random_rows(rows, cols, 1);
    Scratch s;
    run_all(isa.quantize_rows, {x.data(), q.data, int(rows), layout}, s.view);
  }
};

plan::Activations activations(const Options& o) { return o.int16 ? plan::Activations::int16 : plan::Activations::int8; }

void bench_gemv(const Options& o, Pool& pool, const Isa& isa) {
  for (const auto& [rows, cols] : {std::pair<int, int>{8192, 2048}, {2048, 4096}, {512, 2048}}) {
    const std::int64_t one = std::int64_t(rows) * (cols / 2 + cols / 16);
    const Stack w(o, std::min<std::int64_t>(800'000'000 / one, 512), rows, cols);
    for (int tokens : {1, 2, 4, 8}) {
      const Input in(isa, tokens, cols, o.int16 ? 2 : 1);
      std::vector<float> y(std::size_t(rows * tokens));
      report(o, "gemv " + std::to_string(rows) + "x" + std::to_string(cols) + " rows " + std::to_string(tokens), "GB/s",
             [&] { return read_rate(pool, isa.name, w.memory.data, w.m.bytes()); },
             [&] {
               double s = 0;
               for (std::int64_t i = 0; i < w.m.count; ++i) {
                 LinearArgs a{.activations = activations(o), .q = in.q.data, .layout = in.layout, .w = w.m.at(o.resident ? 0 : i)};
                 a.y = y.data(), a.rows = tokens, a.decode = true;
                 s += run_units(pool, isa.linear, a);
               }
               return double(w.m.bytes()) / s;
             });
    }
  }
}

void bench_gemm(const Options& o, Pool& pool, const Isa& isa) {
  struct Shape { int rows, cols, tokens; };
  for (const Shape& c : {Shape{8192, 2048, 512}, {2048, 4096, 512}, {512, 2048, 512}, {8192, 2048, 64}, {8192, 2048, 2048},
                         {512, 2048, 1}, {512, 2048, 2}, {512, 2048, 4}, {512, 2048, 6}, {512, 2048, 8}, {512, 2048, 12}, {512, 2048, 16}}) {
    const Stack w(o, 1, c.rows, c.cols);
    const Input in(isa, c.tokens, c.cols, o.int16 ? 2 : 1);
    const Buffer y(std::int64_t(c.rows) * c.tokens * 4);
    LinearArgs a{.activations = activations(o), .q = in.q.data, .layout = in.layout, .w = w.m};
    a.y = y.floats(), a.rows = c.tokens, a.techniques = o.techniques;
    report(o, "gemm " + std::to_string(c.rows) + "x" + std::to_string(c.cols) + " tokens " + std::to_string(c.tokens), "GOP/s",
           [&] { return peak_rate(pool, isa.name); },
           [&] { return 2.0 * c.rows * c.cols * c.tokens * (o.int16 ? 2 : 1) / run_units(pool, isa.linear, a); });
  }
  for (int width : {2048, 4096}) {
    const auto x = random_rows(512, width, 1);
    const QuantLayout l = {width, o.int16 ? 2 : 1};
    std::vector<std::byte> q(std::size_t(512 * l.row_bytes()));
    const QuantizeRowsArgs a = {x.data(), q.data(), 512, l};
    report(o, "quantize_rows " + std::to_string(width), "Gvalue/s", [] { return 1e9; },
           [&] { return 512.0 * width / run_units(pool, isa.quantize_rows, a); });
  }
}

struct Routing {
  std::vector<std::int32_t> groups;
  std::vector<float> weight;
  Routing(int rows, int experts, int k) : groups(std::size_t(experts + 1 + rows * k)), weight(std::size_t(rows * k), 0.125f) {
    std::mt19937 random(1);
    std::vector<double> bias;  // popularity: uneven, as a router's is
    std::normal_distribution<double> normal;
    for (int e = 0; e < experts; ++e) bias.push_back(0.7 * normal(random));
    std::vector<std::int32_t> expert;
    for (int t = 0; t < rows; ++t) {
      std::vector<std::pair<double, int>> score;
      for (int e = 0; e < experts; ++e) score.push_back({-(bias[std::size_t(e)] + normal(random)), e});
      std::partial_sort(score.begin(), score.begin() + k, score.end());
      std::vector<int> chosen;
      for (int i = 0; i < k; ++i) chosen.push_back(score[std::size_t(i)].second);
      std::sort(chosen.begin(), chosen.end());
      expert.insert(expert.end(), chosen.begin(), chosen.end());
    }
    expert_sort_ref({expert.data(), groups.data(), rows, experts, k});
  }
};

void bench_experts(const Options& o, Pool& pool, const Isa& isa) {
  constexpr int kExperts = 256, kK = 8, kInner = 512, kWidth = 2048;
  Stack gate(o, kExperts, kInner, kWidth), up(o, kExperts, kInner, kWidth), down(o, kExperts, kWidth, kInner);
  if (o.resident)
    for (Stack* s : {&gate, &up, &down}) s->m.stack_bytes = 0, s->m.scale_stack_bytes = 0;
  for (int tokens : {1, 2, 256, 512, 2048}) {
    const bool decode = tokens <= 8;
    const Input x(isa, tokens, kWidth, o.int16 ? 2 : 1), h(isa, std::int64_t(tokens) * kK, kInner, o.int16 ? 2 : 1);
    const Buffer out(4ll * tokens * kK * kInner), residual(4ll * tokens * kWidth), shared(4ll * tokens * kWidth);
    const std::vector<float> gates(std::size_t(tokens), 0.1f);
    Routing r(tokens, kExperts, kK);
    std::mt19937 random(5);
    const int repeat = decode ? 32 : 1;  // decode: other experts each time, so that weights come from memory
    std::int64_t active = 0;
    const auto next = [&] {
      if (!decode) return;
      std::vector<std::int32_t> expert;
      for (int t = 0; t < tokens; ++t)
        for (int i = 0; i < kK; ++i) expert.push_back(std::int32_t(i * 32 + random() % 32));
      expert_sort_ref({expert.data(), r.groups.data(), tokens, kExperts, kK});
      for (int e = 0; e < kExperts; ++e) active += r.groups[e] != r.groups[e + 1];
    };
    const ExpertInArgs in_args = {.activations = activations(o), .q = x.q.data, .layout = x.layout, .gate = gate.m, .up = up.m,
                                  .groups = r.groups.data(), .h = out.floats(), .rows = tokens, .k = kK, .decode = decode, .techniques = o.techniques};
    const ExpertOutArgs out_args = {.activations = activations(o), .q = h.q.data, .layout = h.layout, .down = down.m,
                                    .groups = r.groups.data(), .weight = r.weight.data(), .shared = shared.floats(),
                                    .shared_gate = gates.data(), .residual = residual.floats(), .rows = tokens, .k = kK,
                                    .decode = decode, .techniques = o.techniques};
    const auto measure = [&](double matrices, const std::function<double()>& f) {
      active = 0;
      double s = 0;
      for (int i = 0; i < repeat; ++i) {
        next();
        s += f();
      }
      return decode ? matrices * double(active) * double(gate.m.bytes_one()) / s
                    : matrices * 2 * tokens * kK * kInner * kWidth * (o.int16 ? 2 : 1) / s;
    };
    const auto limit = [&] {
      return decode ? read_rate(pool, isa.name, gate.memory.data, gate.m.bytes()) : peak_rate(pool, isa.name);
    };
    const char* unit = decode ? "GB/s" : "GOP/s";
    report(o, "expert_in tokens " + std::to_string(tokens), unit, limit,
           [&] { return measure(2, [&] { return run_units(pool, isa.expert_in, in_args); }); });
    report(o, "expert_out tokens " + std::to_string(tokens), unit, limit,
           [&] { return measure(1, [&] { return run_units(pool, isa.expert_out, out_args); }); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  std::vector<std::string> off;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto value = [&]() -> std::string { return ++i < argc ? argv[i] : ""; };
    if (flag == "--isa") o.isa = value();
    else if (flag == "--threads") o.threads = std::max(1, std::atoi(value().c_str()));
    else if (flag == "--rounds") o.rounds = std::max(1, std::atoi(value().c_str()));
    else if (flag == "--only") o.only = value();
    else if (flag == "--filter") o.filter = value();
    else if (flag == "--offset") o.offset = std::clamp(std::atoi(value().c_str()), 0, 63);
    else if (flag == "--ablate") off.push_back(value());
    else if (flag == "--int16") o.int16 = true;
    else if (flag == "--wall") o.wall = true;
    else if (flag == "--resident") o.resident = true;
    else return std::fprintf(stderr, "bench_matmul: unknown flag %s (see the head of bench/bench_matmul.cpp)\n", argv[i]), 1;
  }
  o.techniques = without("cpu", off).kernels;
  const auto isas = testing::available_isas();
  const Isa* isa = isas.empty() ? nullptr : &isas.back();
  for (const Isa& i : isas)
    if (o.isa == i.name) isa = &i;
  if (!isa || (!o.isa.empty() && o.isa != isa->name))
    return std::fprintf(stderr, "bench_matmul: this machine has no '%s'\n", o.isa.c_str()), 1;
  Pool pool(o.threads, o.wall);
  std::printf("%s, %d threads, %s\n", isa->name, o.threads, o.int16 ? "two terms" : "one term");
  if (o.only.empty() || o.only == "gemv") bench_gemv(o, pool, *isa);
  if (o.only.empty() || o.only == "gemm") bench_gemm(o, pool, *isa);
  if (o.only.empty() || o.only == "experts") bench_experts(o, pool, *isa);
  return 0;
}
