// quantize_rows, linear, linear_add and the expert ops of every instruction set against a naive form in double precision.
//
// Tolerance. The integer sums are exact, so a kernel's error is that of its float operations: every term (a group's exact sum
// times two scales, a bias times a group's sum) is rounded at most 4 times and then added at most 2·groups + 8 times, each
// operation by a factor 1 ± 2^-24: |error| ≤ (2·groups + 12)·2^-24·Σ|terms|. float32 rows: each product is rounded once, a
// dequantised weight twice, and added at most cols/4 + 4 times.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/matmul_kernels.h"

namespace lily::ops::testing {
namespace {

using plan::Activations;
constexpr double kEps = 1.0 / (1 << 24);

struct Expected {
  double value = 0, bound = 0;
};

// What row r of w (of matrix e of the stack) times one input row must be.
Expected expected_dot(const Matrix& w, std::int64_t e, std::int64_t r, Activations act, const float* x, const std::byte* q,
                      const QuantLayout& l) {
  const std::byte* data = w.data + e * w.stack_bytes + r * w.row_bytes;
  const std::byte* scales = w.scales + e * w.scale_stack_bytes + r * w.scale_row_bytes;
  const std::byte* biases = w.biases + e * w.scale_stack_bytes + r * w.scale_row_bytes;
  Expected out;
  double sum = 0;
  const int terms = act == Activations::int16 ? 2 : 1;
  for (std::int64_t k = 0; k < w.cols; ++k) {
    double v;
    if (act == Activations::f32) {
      v = x[k];
    } else {
      const double scale = reinterpret_cast<const float*>(q + l.scale_offset())[k / kQuantGroup];
      v = double(std::int8_t(q[l.position(int(k))]));
      if (terms == 2) v += double(std::int8_t(q[l.term_offset(1) + l.position(int(k))])) / 256.0;
      v *= scale;
    }
    if (!w.group) {
      const double p = v * double(TestMatrix::value(data, w.plain, k));
      out.value += p, sum += std::fabs(p);
      continue;
    }
    const double s = double(TestMatrix::value(scales, w.scale_type, k / w.group)) * code_at(data, k, w.bits);
    const double b = TestMatrix::value(biases, w.scale_type, k / w.group);
    out.value += v * (s + b);
    sum += std::fabs(v * s) + std::fabs(v * b);
  }
  const double steps = act == Activations::f32 ? double(w.cols) / 4 + 8 : 2 * double(w.cols / w.group) + 12;
  out.bound = steps * kEps * sum + 1e-30;
  return out;
}

// Input rows in all forms.
struct Input {
  std::vector<float> x;
  std::vector<std::byte> q;
  QuantLayout layout;
  std::int64_t width;
  Input(std::int64_t rows, std::int64_t cols, int terms, unsigned seed) : width(cols) {
    x = random_rows(rows, cols, seed);
    if (terms == 0) return;
    layout = {int(cols), terms};
    q.resize(std::size_t(rows * layout.row_bytes()));
    quantize_rows_ref({x.data(), q.data(), int(rows), layout});
  }
  const float* row(std::int64_t r) const { return x.data() + r * width; }
  const std::byte* qrow(std::int64_t r) const { return q.data() + r * layout.row_bytes(); }
};

struct Case {
  std::int64_t rows, cols;
  int bits, group;
  DType type;
  int tokens;
  Activations act;
  int terms;  // stored
  bool decode;
};

std::vector<Case> cases() {
  std::vector<Case> out;
  const auto i8 = Activations::int8, i16 = Activations::int16, f = Activations::f32;
  for (bool decode : {false, true}) {
    for (int tokens : {1, 2, 3, 5, 8, 13}) out.push_back({70, 1088, 4, 64, DType::bf16, tokens, i8, 1, decode});
    for (int tokens : {1, 4, 8, 12}) out.push_back({96, 4224, 4, 128, DType::bf16, tokens, i8, 1, decode});  // more than a panel's columns
    out.push_back({64, 1088, 4, 64, DType::bf16, 5, i8, 2, decode});
    out.push_back({64, 640, 4, 128, DType::f32, 3, i8, 2, decode});
    out.push_back({32, 640, 4, 128, DType::f16, 8, i8, 1, decode});
    for (int tokens : {2, 7, 13}) out.push_back({64, 1088, 4, 64, DType::f16, tokens, i8, 1, decode});
    out.push_back({64, 2048, 4, 64, DType::bf16, 7, i16, 2, decode});
    out.push_back({33, 512, 4, 64, DType::bf16, 4, i8, 2, decode});
    out.push_back({1, 2048, 8, 64, DType::bf16, 6, i16, 2, decode});
    out.push_back({130, 576, 8, 64, DType::bf16, 11, i8, 1, decode});
    for (int bits : {2, 3, 4, 5, 6, 8})
      for (int group : {32, 64, 128})
        for (DType type : {DType::bf16, DType::f16, DType::f32})
          out.push_back({19, 640, bits, group, type, 3, bits % 2 ? i16 : i8, 2, decode});
    for (int bits : {3, 4, 8}) out.push_back({21, 192, bits, 32, DType::bf16, 5, i16, 2, decode});
    for (int bits : {2, 4, 5, 8}) out.push_back({37, 576, bits, 64, DType::bf16, 5, f, 0, decode});
    for (DType type : {DType::bf16, DType::f16, DType::f32}) out.push_back({22, 203, 0, 0, type, 6, f, 0, decode});
  }
  return out;
}

std::string describe(const Isa& isa, const Case& c) {
  return std::string(isa.name) + " " + std::to_string(c.rows) + "x" + std::to_string(c.cols) + " bits " +
         std::to_string(c.bits) + " group " + std::to_string(c.group) + " scales " + dtype_name(c.type) + " tokens " +
         std::to_string(c.tokens) + " activations " + std::to_string(int(c.act)) + (c.decode ? " decode" : " prefill");
}

LinearArgs linear_args(const Case& c, const Matrix& w, const Input& in, float* y) {
  LinearArgs a{.activations = c.act, .x = in.x.data(), .q = in.q.data(), .layout = in.layout, .w = w};
  a.y = y;
  a.rows = c.tokens;
  a.decode = c.decode;
  return a;
}

std::vector<float> run_linear(const Isa& isa, const Case& c, const Matrix& w, const Input& in, const Techniques& techniques = {}) {
  static Scratch scratch;
  std::vector<float> y(std::size_t(c.tokens * c.rows), NAN);
  LinearArgs a = linear_args(c, w, in, y.data());
  a.techniques = techniques;
  run_all(isa.linear, a, scratch.view);
  return y;
}

int count_wrong(const Case& c, const Matrix& w, const Input& in, const std::vector<float>& y, double* worst) {
  int wrong = 0;
  for (int t = 0; t < c.tokens; ++t)
    for (std::int64_t r = 0; r < c.rows; ++r) {
      const Expected e = expected_dot(w, 0, r, c.act, in.row(t), c.act == Activations::f32 ? nullptr : in.qrow(t), in.layout);
      const double error = std::fabs(y[std::size_t(t * c.rows + r)] - e.value);
      *worst = std::max(*worst, error / e.bound);
      wrong += !(error <= e.bound);
    }
  return wrong;
}

TEST(Matmul, LinearMatchesNaiveForm) {
  for (const Isa& isa : available_isas())
    for (const Case& c : cases()) {
      TestMatrix w(1, c.rows, c.cols, c.bits, c.group, c.type, 1);
      const Input in(c.tokens, c.cols, c.terms, 2);
      double worst = 0;
      EXPECT_EQ(count_wrong(c, w.m, in, run_linear(isa, c, w.m, in), &worst), 0) << describe(isa, c) << " worst " << worst;
    }
}

// The comparison notices one code that is off by one, and a scale of a neighbouring group.
TEST(Matmul, ComparisonCanFail) {
  for (const Isa& isa : available_isas())
    for (bool decode : {false, true}) {
      const Case c = {64, 1024, 4, 64, DType::bf16, 3, Activations::int8, 1, decode};
      TestMatrix w(1, c.rows, c.cols, c.bits, c.group, c.type, 1);
      const Input in(c.tokens, c.cols, c.terms, 2);
      TestMatrix other = w;
      other.data[5] ^= std::byte(1);
      other.m.data = other.data.data(), other.m.scales = other.scales.data(), other.m.biases = other.biases.data();
      double worst = 0;
      EXPECT_GT(count_wrong(c, w.m, in, run_linear(isa, c, other.m, in), &worst), 0) << isa.name;
      other.data = w.data, other.m.data = other.data.data();
      std::swap(other.scales[2], other.scales[4]);
      EXPECT_GT(count_wrong(c, w.m, in, run_linear(isa, c, other.m, in), &worst), 0) << isa.name;
    }
}

// Prefill adds in one order whatever the width of a vector and however the weights lie in scratch, so instruction sets with dot
// products agree bit by bit: the same integers. Those without convert a sum to float twice as often (every 32 columns).
TEST(Matmul, PrefillBitsAreTheSameInEveryFormAndOnEveryInstructionSetWithDotProducts) {
  std::vector<Isa> isas;
  for (const Isa& isa : available_isas())
    if (std::string(isa.name) != "avx2" && std::string(isa.name) != "neon") isas.push_back(isa);
  if (isas.empty()) GTEST_SKIP() << "this processor has no dot products";
  for (Case c : cases()) {
    if (c.decode || c.act == Activations::f32) continue;
    if (c.rows == 70 && c.tokens > 1) c.tokens *= 9;  // from one row to more than what is multiplied packed
    TestMatrix w(1, c.rows, c.cols, c.bits, c.group, c.type, 3);
    const Input in(c.tokens, c.cols, c.terms, 4);
    const auto first = run_linear(isas[0], c, w.m, in);
    for (const Isa& isa : isas)
      for (int off = 0; off < 8; ++off) {
        const Techniques t = {.packed_panels = !(off & 1), .paired_columns = !(off & 2), .few_rows = !(off & 4)};
        const auto y = run_linear(isa, c, w.m, in, t);
        EXPECT_EQ(std::memcmp(y.data(), first.data(), y.size() * 4), 0)
            << describe(isa, c) << (t.packed_panels ? " packed" : "") << (t.paired_columns ? " paired" : "") << (t.few_rows ? " few rows" : "");
      }
  }
}

// A row's bits do not depend on the rows beside it, on their number, or on how the units are dealt out.
TEST(Matmul, RowsAreIndependent) {
  Scratch scratch;
  for (const Isa& isa : available_isas())
    for (Case c : cases()) {
      TestMatrix w(1, c.rows, c.cols, c.bits, c.group, c.type, 5);
      c.tokens = c.decode ? 9 : 300;
      if (c.rows != 70 && c.tokens > 9) c.tokens = 29;
      const Input in(c.tokens, c.cols, c.terms, 6);
      const auto all = run_linear(isa, c, w.m, in);
      std::vector<float> y(all.size(), NAN);
      LinearArgs a = linear_args(c, w.m, in, y.data());
      for (std::int64_t u = isa.linear.units(a); u-- > 0;) isa.linear.run(a, u, u + 1, scratch.view);
      EXPECT_EQ(std::memcmp(y.data(), all.data(), y.size() * 4), 0) << "units: " << describe(isa, c);
      for (int begin = 0, n = 1; begin < c.tokens; begin += n, n = n % 7 + 1) {  // in pieces of 1, 2, … 7 rows
        n = std::min(n, c.tokens - begin);
        a.rows = n;
        a.x = in.row(begin);
        if (c.terms) a.q = in.qrow(begin);
        a.y = y.data() + begin * c.rows;
        std::fill(a.y, a.y + n * c.rows, NAN);
        run_all(isa.linear, a, scratch.view);
      }
      EXPECT_EQ(std::memcmp(y.data(), all.data(), y.size() * 4), 0) << "pieces: " << describe(isa, c);
    }
}

TEST(Matmul, LinearAddIsThePlainSum) {
  Scratch scratch;
  for (const Isa& isa : available_isas())
    for (const Case& c : cases()) {
      TestMatrix w(1, c.rows, c.cols, c.bits, c.group, c.type, 7);
      const Input in(c.tokens, c.cols, c.terms, 8);
      const auto plain = run_linear(isa, c, w.m, in);
      std::vector<float> y = random_rows(c.tokens, c.rows, 9), want = y;
      LinearArgs a = linear_args(c, w.m, in, y.data());
      a.residual = y.data();  // in place
      run_all(isa.linear, a, scratch.view);
      for (std::size_t i = 0; i < y.size(); ++i) want[i] += plain[i];
      EXPECT_EQ(std::memcmp(y.data(), want.data(), y.size() * 4), 0) << describe(isa, c);
    }
}

TEST(Matmul, QuantizeRowsIsTheReferenceBitByBit) {
  Scratch scratch;
  for (const Isa& isa : available_isas())
    for (int terms : {1, 2})
      for (int width : {32, 96, 2048}) {
        auto x = random_rows(5, width, 11);
        std::fill(x.begin(), x.begin() + 32, 0.0f);
        x[std::size_t(width)] = 1e30f, x[std::size_t(width) + 1] = 1e-38f;
        for (int i = 0; i < 32; ++i) x[std::size_t(2 * width + i)] = 1e-40f * float(i);
        for (int i = 0; i < 32; ++i) x[std::size_t(3 * width + i)] = float(i) + 0.5f, x[std::size_t(3 * width)] = 127.0f;
        const QuantLayout l = {width, terms};
        std::vector<std::byte> want(std::size_t(5 * l.row_bytes())), got(want.size());
        quantize_rows_ref({x.data(), want.data(), 5, l});
        run_all(isa.quantize_rows, {x.data(), got.data(), 5, l}, scratch.view);
        EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size()), 0) << isa.name << " " << terms << " " << width;
      }
}

TEST(Matmul, NonFiniteRowsPoisonTheirResultsOnly) {
  Scratch scratch;
  for (const Isa& isa : available_isas())
    for (bool decode : {false, true})
      for (bool reference : {false, true})  // who quantises
        for (std::int64_t rows : {40, 64})
          for (float bad : {INFINITY, -INFINITY, NAN}) {
            const Case c = {rows, 128, 4, 64, DType::bf16, 3, Activations::int8, 1, decode};
            TestMatrix w(1, c.rows, c.cols, c.bits, c.group, c.type, 1);
            Input in(c.tokens, c.cols, 1, 2);
            in.x[128 + 77] = bad;
            const QuantizeRowsArgs a = {in.x.data(), in.q.data(), 3, in.layout};
            reference ? quantize_rows_ref(a) : run_all(isa.quantize_rows, a, scratch.view);
            const auto y = run_linear(isa, c, w.m, in);
            for (std::int64_t r = 0; r < c.rows; ++r) {
              EXPECT_TRUE(std::isfinite(y[std::size_t(r)]) && std::isfinite(y[std::size_t(2 * c.rows + r)])) << isa.name;
              EXPECT_FALSE(std::isfinite(y[std::size_t(c.rows + r)])) << isa.name;
            }
          }
}

}  // namespace
}  // namespace lily::ops::testing
