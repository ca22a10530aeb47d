// The CPU's row-wise ops against their scalar forms and, for the functions, against double precision. A bound names the
// roundings that it counts, each worth kUnit relative; elementwise bounds hold in the norm, where independent roundings
// do not add up in full.
#include "ops/cpu_ops.h"

#include <limits>

#include "base/half.h"

namespace lily::ops::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Isa, CpuOps, ::testing::ValuesIn(available_isas()),
                         [](const auto& info) { return info.param; });

constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

// silu, sigmoid, softplus, exp over all of their range. Each: exp (1 ulp = 2 units and the argument's rounding), one or
// two additions, a division: at most 8 units in any element.
TEST_P(CpuOps, FunctionsInEveryElement) {
  Floats x;
  for (float v = -85; v < 85; v += 0.0137f) x.push_back(v);
  const std::size_t n = x.size();
  const int width = int(n);
  const Floats one(n, 1.0f), zero(n, 0.0f);
  Floats h(n), g(n), beta(n), gated(n);
  run_units(k().silu_mul, {x.data(), one.data(), h.data(), 1, width});
  run_units(k().sigmoid_gate, {one.data(), x.data(), gated.data(), 1, width});
  run_units(k().gdn_gates, {x.data(), x.data(), zero.data(), zero.data(), g.data(), beta.data(), 1, width});
  double silu = 0, sigmoid = 0, softplus = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double s = 1 / (1 + std::exp(-double(x[i]))), plus = std::log1p(std::exp(double(x[i])));
    if (x[i] != 0) silu = std::max(silu, std::abs(h[i] - x[i] * s) / std::abs(x[i] * s));
    sigmoid = std::max({sigmoid, std::abs(beta[i] - s) / s, std::abs(gated[i] - s) / s});
    softplus = std::max(softplus, std::abs(-g[i] - plus) / plus);
  }
  EXPECT_LE(silu, 8 * kUnit);
  EXPECT_LE(sigmoid, 8 * kUnit);
  EXPECT_LE(softplus, 8 * kUnit);
  // exp itself: g = −exp(A_log)·softplus(a), with softplus(a) made 1.
  const Floats a(n, float(std::log(std::exp(1.0) - 1)));
  run_units(k().gdn_gates, {a.data(), a.data(), x.data(), zero.data(), g.data(), beta.data(), 1, width});
  double exponential = 0;
  for (std::size_t i = 0; i < n; ++i)
    exponential = std::max(exponential, std::abs(-g[i] - std::exp(double(x[i]))) / std::exp(double(x[i])));
  EXPECT_LE(exponential, 8 * kUnit);
  EXPECT_GT(exponential, 0);  // rounding there must be
}

TEST_P(CpuOps, FunctionsAtTheEnds) {
  const Floats x = {kInf, -kInf, kNaN, 0, 100, -100, 3e38f, -3e38f, 1e-40f}, one(x.size(), 1), zero(x.size(), 0);
  const int n = int(x.size());
  Floats h(x.size()), g(x.size()), beta(x.size());
  run_units(k().silu_mul, {x.data(), one.data(), h.data(), 1, n});
  run_units(k().gdn_gates, {x.data(), x.data(), zero.data(), zero.data(), g.data(), beta.data(), 1, n});
  EXPECT_EQ(h[0], kInf);
  EXPECT_TRUE(std::isnan(h[2]));
  EXPECT_EQ(h[3], 0);
  EXPECT_EQ(h[4], 100);
  EXPECT_EQ(h[7], 0);
  EXPECT_TRUE(std::isnan(beta[2]));
  beta[2] = 9;
  EXPECT_EQ(beta, (Floats{1, 0, 9, 0.5f, 1, beta[5], 1, 0, 0.5f}));
  EXPECT_LE(beta[5], 1e-37f);
  EXPECT_EQ(g[0], -kInf);
  EXPECT_EQ(g[1], 0);
  EXPECT_TRUE(std::isnan(g[2]));
  EXPECT_EQ(g[4], -100);
}

TEST_P(CpuOps, RmsNorms) {
  for (int width : {1, 37, 128, 384, 2048}) {
    const Floats x = normal(std::size_t(5 * width), 1), w = normal(std::size_t(width), 2);
    Floats y(x.size()), truth(x.size());
    const RmsNormArgs a{x.data(), w.data(), truth.data(), 5, width, 1e-6f};
    rms_norm_ref(a);
    RmsNormArgs b = a;
    b.y = y.data();
    run_units(k().rms_norm, b);
    EXPECT_LE(distance(y, truth), 8 * kUnit) << width;  // mean, root, division, two products; fma sums lose less
    Floats in_place = x;
    b.x = b.y = in_place.data();
    run_units(k().rms_norm, b);
    EXPECT_TRUE(same_bits(in_place, y));
    Floats other = w;
    other[0] += 0.01f;  // one weight of `width` a little off must be seen
    b.w = other.data();
    b.x = x.data();
    b.y = y.data();
    run_units(k().rms_norm, b);
    EXPECT_GT(distance(y, truth), 8 * kUnit);
  }
  for (int dim : {13, 32, 128}) {
    const int heads = 11;
    const Floats o = normal(std::size_t(3 * heads * dim), 3), z = normal(o.size(), 4), w = normal(std::size_t(dim), 5);
    Floats y(o.size()), truth(o.size());
    GatedRmsNormArgs a{o.data(), z.data(), w.data(), truth.data(), 3, heads, dim, 1e-6f};
    gated_rms_norm_ref(a);
    a.y = y.data();
    run_units(k().gated_rms_norm, a);
    EXPECT_LE(distance(y, truth), 12 * kUnit) << dim;  // as above, and silu
  }
}

TEST_P(CpuOps, Elementwise) {
  for (int width : {1, 100, 2048, 5000}) {
    const std::size_t n = std::size_t(3 * width);
    const Floats x = normal(n, 6), y = normal(n, 7);
    Floats out(n), truth(n);
    SigmoidGateArgs gate{x.data(), y.data(), truth.data(), 3, width};
    sigmoid_gate_ref(gate);
    gate.y = out.data();
    run_units(k().sigmoid_gate, gate);
    EXPECT_LE(distance(out, truth), 6 * kUnit);
    SiluMulArgs mul{x.data(), y.data(), truth.data(), 3, width};
    silu_mul_ref(mul);
    mul.h = out.data();
    run_units(k().silu_mul, mul);
    EXPECT_LE(distance(out, truth), 6 * kUnit);
    out = truth = x;
    AddArgs add{y.data(), truth.data(), 3, width};
    add_ref(add);
    add.residual = out.data();
    run_units(k().add, add);
    EXPECT_TRUE(same_bits(out, truth));  // one correctly rounded addition
    const int slots = 5;
    const Floats d = normal(n * slots, 8), p = normal(3 * slots, 9), shared = normal(n, 10),
                 shared_gate = normal(3, 11);
    out = truth = x;
    MoeCombineArgs combine{d.data(), p.data(), shared.data(), shared_gate.data(), truth.data(), 3, slots, width};
    moe_combine_ref(combine);
    combine.residual = out.data();
    run_units(k().moe_combine, combine);
    EXPECT_LE(distance(out, truth), 8 * kUnit);  // slots + 3 roundings, half of them saved by fma
  }
  const Floats x = normal(6 * 10, 12);
  const std::vector<std::int32_t> rows = {5, 0, 3};
  Floats y(3 * 10), truth(3 * 10);
  gather_rows_ref({x.data(), rows.data(), truth.data(), 3, 10});
  run_units(k().gather_rows, {x.data(), rows.data(), y.data(), 3, 10});
  EXPECT_TRUE(same_bits(y, truth));
}

TEST_P(CpuOps, EmbedIsExact) {
  std::mt19937 random(13);
  const std::vector<std::int32_t> ids = {4, 0, 6, 4};
  auto check = [&](Matrix m, int width) {
    Floats x(ids.size() * std::size_t(width)), truth(x.size());
    embed_ref({ids.data(), m, truth.data(), int(ids.size()), width});
    run_units(k().embed, {ids.data(), m, x.data(), int(ids.size()), width});
    EXPECT_TRUE(same_bits(x, truth)) << m.bits << " bits, group " << m.group << ", "
                                     << dtype_name(m.quantized() ? m.scale_type : m.plain);
  };
  for (DType type : {DType::bf16, DType::f16, DType::f32}) {
    const std::size_t bytes = dtype_bytes(type);
    std::vector<std::uint8_t> data(7 * 192 * bytes + 8);
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = std::uint8_t(random() & (i % bytes == bytes - 1 ? 0x3f : 0xff));  // finite
    const std::byte* p = reinterpret_cast<const std::byte*>(data.data());
    check({.rows = 7,
           .cols = 192,
           .bits = int(8 * bytes),
           .plain = type,
           .data = p,
           .row_bytes = std::int64_t(192 * bytes)},
          192);
    for (int bits : {2, 3, 4, 5, 6, 8})
      for (int group : {32, 64, 96}) {
        std::vector<std::uint8_t> codes(std::size_t(7 * 192 * bits / 8));  // exactly: reading beyond it is a fault
        for (auto& c : codes) c = std::uint8_t(random());
        check({.rows = 7,
               .cols = 192,
               .bits = bits,
               .group = group,
               .scale_type = type,
               .data = reinterpret_cast<const std::byte*>(codes.data()),
               .scales = p,
               .biases = p + 2 * bytes,
               .row_bytes = 192 * bits / 8,
               .scale_row_bytes = std::int64_t(bytes) * (192 / group)},
              192);
      }
  }
}

TEST_P(CpuOps, QkNormRope) {
  for (int dim : {16, 40, 64, 256}) {
    const int heads = 4, kv_heads = 2, rows = 7, rotary = dim / 4 / 2 * 2;
    const Floats qg = normal(std::size_t(rows * heads * 2 * dim), 14),
                 k0 = normal(std::size_t(rows * kv_heads * dim), 15);
    const Floats qn = normal(std::size_t(dim), 16), kn = normal(std::size_t(dim), 17);
    const StateLayout layout = layout_of(kv_heads, dim, DType::bf16);
    SequenceState a(layout), b(layout);
    const SegmentRows segments[] = {{&a, 100000, 0, 3}, {&b, 17, 3, 4}};
    const std::size_t n = std::size_t(rows * heads * dim);
    Floats kr = k0, kx = k0, qr(n), qx(n), gr(n), gx(n);
    QkNormRopeArgs args{qg.data(), kr.data(), qr.data(), gr.data(), qn.data(), kn.data(), segments,
                        rows,      heads,     kv_heads,  dim,       rotary,    1e7,       1e-6f};
    qk_norm_rope_ref(args);
    args.k = kx.data();
    args.q = qx.data();
    args.gate = gx.data();
    run_units(k().qk_norm_rope, args);
    EXPECT_LE(distance(qx, qr), 12 * kUnit) << dim;  // the norm, sine and cosine, two products, one sum
    EXPECT_LE(distance(kx, kr), 12 * kUnit) << dim;
    EXPECT_TRUE(same_bits(gx, gr));
  }
}

TEST_P(CpuOps, RouterAndSort) {
  for (int experts : {8, 32, 256}) {
    const int slots = 8, rows = 40;
    Floats logits = normal(std::size_t(rows * experts), 18);
    for (int e = 0; e < experts; ++e) {  // rows 0 … 4: ties, NaN, infinities
      logits[std::size_t(e)] = float(e % 3);
      logits[std::size_t(experts + e)] = kNaN;
      logits[std::size_t(2 * experts + e)] = e % 2 ? kNaN : kInf;
      logits[std::size_t(3 * experts + e)] = -kInf;
      logits[std::size_t(4 * experts + e)] = 7;
    }
    std::vector<std::int32_t> chosen(std::size_t(rows * slots)), truth(chosen.size());
    Floats weight(chosen.size()), weight_ref(chosen.size());
    router_topk_ref({logits.data(), truth.data(), weight_ref.data(), rows, experts, slots});
    run_units(k().router_topk, {logits.data(), chosen.data(), weight.data(), rows, experts, slots});
    EXPECT_EQ(chosen, truth) << experts;
    const auto finite = [&](const Floats& w) { return Floats(w.begin() + 4 * slots, w.end()); };
    EXPECT_LE(distance(finite(weight), finite(weight_ref)), 6 * kUnit);
    for (int r : {1, 2})  // a NaN among the logits reaches every weight of the row
      for (int s = 0; s < slots; ++s)
        EXPECT_TRUE(std::isnan(weight[std::size_t(r * slots + s)]) && std::isnan(weight_ref[std::size_t(r * slots + s)]));
    EXPECT_EQ(weight[std::size_t(4 * slots)], 0.125f);  // all equal: the first eight, an eighth each
    EXPECT_EQ(chosen[std::size_t(4 * slots + 7)], 7);
    // One NaN among finite logits is enough.
    Floats spoilt(logits.begin() + 5 * experts, logits.begin() + 6 * experts);
    spoilt[std::size_t(experts - 1)] = kNaN;
    std::vector<std::int32_t> one(std::size_t(slots), -1);
    Floats one_weight(std::size_t(slots), 0.0f);
    run_units(k().router_topk, {spoilt.data(), one.data(), one_weight.data(), 1, experts, slots});
    for (float w : one_weight) EXPECT_TRUE(std::isnan(w));
    router_topk_ref({spoilt.data(), one.data(), one_weight.data(), 1, experts, slots});
    for (float w : one_weight) EXPECT_TRUE(std::isnan(w));
    std::vector<std::int32_t> groups(std::size_t(experts + 1 + rows * slots)), groups_ref(groups.size());
    expert_sort_ref({chosen.data(), groups_ref.data(), rows, experts, slots});
    run_units(k().expert_sort, {chosen.data(), groups.data(), rows, experts, slots});
    EXPECT_EQ(groups, groups_ref);
  }
}

TEST_P(CpuOps, KvAppendRoundsToNearestEven) {
  const int heads = 2;
  for (DType type : {DType::bf16, DType::f32})
    for (int dim : {7, 8, 40, 256}) {
      SequenceState seq(layout_of(heads, dim, type)), ref(seq.layout);
      const std::int64_t bytes = std::int64_t(dtype_bytes(type));
      const int first = 250, rows = 9;  // across the border of two blocks
      for (SequenceState* s : {&seq, &ref}) s->reserve(first + rows);
      Floats kv = normal(std::size_t(rows * heads * dim), 19);
      kv[0] = kNaN, kv[1] = kInf, kv[2] = -0.0f, kv[3] = 1.00390625f /* a tie: down to 1 */,
      kv[4] = 1.01171875f /* up */, kv[5] = 3.4e38f;
      const SegmentRows mine{&seq, first, 0, rows}, theirs{&ref, first, 0, rows};
      kv_append_ref({kv.data(), kv.data(), {&theirs, 1}, 0, heads, dim});
      run_units(k().kv_append, {kv.data(), kv.data(), {&mine, 1}, 0, heads, dim});
      const StateLayout& l = seq.layout;
      for (int p = first; p < first + rows; ++p)
        for (bool v : {false, true})
          for (int h = 0; h < heads; ++h)
            for (int c = 0; c < dim; ++c) {
              const int slot = p % kKvBlockTokens;
              const std::int64_t at = l.kv_offset(0, v, h) + (v ? l.v_index(slot, c) : l.k_index(slot, c)) * bytes;
              const std::size_t block = std::size_t(p / kKvBlockTokens);
              EXPECT_EQ(std::memcmp(seq.block_data[block] + at, ref.block_data[block] + at, std::size_t(bytes)), 0);
            }
    }
}

}  // namespace
}  // namespace lily::ops::testing
