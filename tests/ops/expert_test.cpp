// expert_linear, expert_in and expert_out of every instruction set: composed of what matmul_test has verified (linear on the
// rows of one expert) they must be equal bit by bit, since a row's bits do not depend on its neighbours; activation functions
// and the sums over experts are compared with the reference forms.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/expert_sort/expert_sort.h"
#include "ops/matmul_kernels.h"
#include "ops/moe_combine/moe_combine.h"
#include "ops/silu_mul/silu_mul.h"

namespace lily::ops::testing {
namespace {

using plan::Activations;

struct Routing {
  std::vector<std::int32_t> expert, groups;
  std::vector<float> weight;
};

// k distinct experts a token, ascending; low indices much more often, so that groups are uneven and some are empty.
Routing route(int rows, int experts, int k, unsigned seed) {
  std::mt19937 random(seed);
  Routing r;
  r.expert.resize(std::size_t(rows * k));
  for (int t = 0; t < rows; ++t) {
    std::vector<int> chosen;
    while (int(chosen.size()) < k) {
      const double u = double(random() % 10000) / 10000;
      const int e = std::min(experts - 1, int(u * u * u * experts));
      if (std::find(chosen.begin(), chosen.end(), e) == chosen.end()) chosen.push_back(e);
    }
    std::sort(chosen.begin(), chosen.end());
    std::copy(chosen.begin(), chosen.end(), r.expert.begin() + t * k);
  }
  for (int i = 0; i < rows * k; ++i) r.weight.push_back(0.01f + float(random() % 1000) / 1000);
  r.groups.resize(std::size_t(experts + 1 + rows * k));
  expert_sort_ref({r.expert.data(), r.groups.data(), rows, experts, k});
  return r;
}

struct Case {
  int rows, experts, k;
  std::int64_t width, inner;
  int bits;
  Activations act;
  bool decode;
};
std::vector<Case> cases() {
  std::vector<Case> out;
  for (bool decode : {false, true})
    for (Activations act : {Activations::int8, Activations::int16, Activations::f32}) {
      out.push_back({1, 16, 4, 256, 96, 4, act, decode});
      out.push_back({7, 16, 4, 256, 128, 4, act, decode});
      out.push_back({61, 8, 3, 128, 128, 8, act, decode});
      out.push_back({400, 6, 2, 64, 64, 4, act, decode});  // groups above a block of tokens
    }
  return out;
}

struct Rows {
  std::vector<float> x;
  std::vector<std::byte> q;
  QuantLayout layout;
  Rows(std::int64_t rows, std::int64_t width, unsigned seed) : x(random_rows(rows, width, seed)), layout{int(width), 2} {
    q.resize(std::size_t(rows * layout.row_bytes()));
    quantize_rows_ref({x.data(), q.data(), int(rows), layout});
  }
};

// y[pair] by linear, a pair at a time.
std::vector<float> by_linear(const Isa& isa, const Case& c, const Matrix& w, const Rows& in, bool per_pair, const Routing& route,
                             CpuScratch& scratch) {
  std::vector<float> y(std::size_t(c.rows * c.k * w.rows));
  for (int pair = 0; pair < c.rows * c.k; ++pair) {
    const std::int64_t row = per_pair ? pair : pair / c.k;
    LinearArgs a{.activations = c.act, .x = in.x.data() + row * w.cols, .q = in.q.data() + row * in.layout.row_bytes()};
    a.layout = in.layout;
    a.w = w.at(route.expert[std::size_t(pair)]);
    a.y = y.data() + pair * w.rows;
    a.rows = 1;
    a.decode = c.decode;
    run_all(isa.linear, a, scratch);
  }
  return y;
}

// Runs a kernel's units in one go, then one by one from the last: both must write the same.
template <class Args>
void run_both_ways(const CpuKernel<Args>& kernel, const Args& args, float* out, std::size_t n, CpuScratch& scratch) {
  const std::vector<float> before(out, out + n);
  run_all(kernel, args, scratch);
  const std::vector<float> once(out, out + n);
  std::copy(before.begin(), before.end(), out);
  for (std::int64_t u = kernel.units(args); u-- > 0;) kernel.run(args, u, u + 1, scratch);
  EXPECT_EQ(std::memcmp(once.data(), out, n * 4), 0);
}

TEST(Experts, LinearAndInAreLinearOfEachPair) {
  Scratch scratch;
  for (const Isa& isa : available_isas())
    for (const Case& c : cases()) {
      TestMatrix gate(c.experts, c.inner, c.width, c.bits, 64, DType::bf16, 1), up(c.experts, c.inner, c.width, c.bits, 64, DType::bf16, 2);
      const Rows in(c.rows, c.width, 3);
      const Routing r = route(c.rows, c.experts, c.k, 4);
      const auto g = by_linear(isa, c, gate.m, in, false, r, scratch.view), u = by_linear(isa, c, up.m, in, false, r, scratch.view);
      std::vector<float> y(g.size(), NAN), h(g.size(), NAN), want(g.size());
      run_both_ways(isa.expert_linear,
                    {.activations = c.act, .x = in.x.data(), .q = in.q.data(), .layout = in.layout, .x_per_pair = false,
                     .w = gate.m, .groups = r.groups.data(), .y = y.data(), .rows = c.rows, .k = c.k, .decode = c.decode},
                    y.data(), y.size(), scratch.view);
      EXPECT_EQ(std::memcmp(y.data(), g.data(), y.size() * 4), 0) << isa.name << " rows " << c.rows;
      run_both_ways(isa.expert_in,
                    {.activations = c.act, .x = in.x.data(), .q = in.q.data(), .layout = in.layout, .gate = gate.m, .up = up.m,
                     .groups = r.groups.data(), .h = h.data(), .rows = c.rows, .k = c.k, .decode = c.decode},
                    h.data(), h.size(), scratch.view);
      silu_mul_ref({g.data(), u.data(), want.data(), c.rows * c.k, c.inner});
      for (std::size_t i = 0; i < h.size(); ++i)  // exp, a sum, a quotient, a product: a few roundings of each
        ASSERT_NEAR(h[i], want[i], 8.0 / (1 << 24) * std::fabs(want[i]) + 1e-37) << isa.name << " rows " << c.rows;
    }
}

TEST(Experts, LinearTakesARowForEachPair) {
  Scratch scratch;
  for (const Isa& isa : available_isas())
    for (const Case& c : cases()) {
      TestMatrix down(c.experts, c.width, c.inner, c.bits, 32, DType::bf16, 1);
      const Rows in(std::int64_t(c.rows) * c.k, c.inner, 3);
      const Routing r = route(c.rows, c.experts, c.k, 4);
      const auto want = by_linear(isa, c, down.m, in, true, r, scratch.view);
      std::vector<float> y(want.size(), NAN);
      run_both_ways(isa.expert_linear,
                    {.activations = c.act, .x = in.x.data(), .q = in.q.data(), .layout = in.layout, .x_per_pair = true,
                     .w = down.m, .groups = r.groups.data(), .y = y.data(), .rows = c.rows, .k = c.k, .decode = c.decode},
                    y.data(), y.size(), scratch.view);
      EXPECT_EQ(std::memcmp(y.data(), want.data(), y.size() * 4), 0) << isa.name << " rows " << c.rows;
    }
}

TEST(Experts, OutIsMoeCombineOfEachPair) {
  Scratch scratch;
  for (const Isa& isa : available_isas())
    for (const Case& c : cases()) {
      TestMatrix down(c.experts, c.width, c.inner, c.bits, 32, DType::bf16, 1);
      const Rows in(std::int64_t(c.rows) * c.k, c.inner, 3);
      const Routing r = route(c.rows, c.experts, c.k, 4);
      const auto d = by_linear(isa, c, down.m, in, true, r, scratch.view);
      const auto shared = random_rows(c.rows, c.width, 5), shared_gate = random_rows(c.rows, 1, 6);
      const auto before = random_rows(c.rows, c.width, 7);
      auto want = before, y = before;
      moe_combine_ref({d.data(), r.weight.data(), shared.data(), shared_gate.data(), want.data(), c.rows, c.k, int(c.width)});
      run_both_ways(isa.expert_out,
                    {.activations = c.act, .h = in.x.data(), .q = in.q.data(), .layout = in.layout, .down = down.m,
                     .groups = r.groups.data(), .weight = r.weight.data(), .shared = shared.data(),
                     .shared_gate = shared_gate.data(), .residual = y.data(), .rows = c.rows, .k = c.k, .decode = c.decode},
                    y.data(), y.size(), scratch.view);
      int wrong = 0, wrong_if_shifted = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {  // only the sigmoid differs: a few units of its last place, then two sums
        const double bound = (6 * std::fabs(shared[i]) + 2 * std::fabs(want[i]) + 2 * std::fabs(want[i] - before[i])) / (1 << 24);
        wrong += !(std::fabs(y[i] - want[i]) <= bound);
        wrong_if_shifted += !(std::fabs(y[i] - want[(i + 1) % want.size()]) <= bound);
      }
      EXPECT_EQ(wrong, 0) << isa.name << " rows " << c.rows << " act " << int(c.act) << (c.decode ? " decode" : "");
      EXPECT_GT(wrong_if_shifted, int(y.size()) / 2);
    }
}

}  // namespace
}  // namespace lily::ops::testing
