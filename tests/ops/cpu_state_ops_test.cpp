// The CPU's ops that read or write a conversation's state: convolution, gated delta rule, attention. Against the scalar
// forms, and against themselves cut into other passes, bit by bit.
#include "base/half.h"
#include "ops/cpu_ops.h"

namespace lily::ops::testing {
namespace {

/// Conversations with equal random beginnings: one for the kernel, one for the scalar form, one for the kernel in small
/// pieces.
struct Three {
  SequenceState whole, ref, pieces;
  explicit Three(const StateLayout& layout, unsigned seed) : whole(layout), ref(layout), pieces(layout) {
    const Floats s = normal(whole.recurrent.recurrent.size(), seed, 0.1f),
                 c = normal(whole.recurrent.conv.size(), seed + 1);
    for (SequenceState* t : {&whole, &ref, &pieces}) {
      t->recurrent.recurrent = s;
      t->recurrent.conv = c;
    }
  }
};

/// Segments of the given lengths, one conversation each; `which` picks the copy.
std::vector<SegmentRows> segments_of(std::vector<Three>& t, const std::vector<int>& lengths,
                                     SequenceState Three::*which) {
  std::vector<SegmentRows> out;
  int row = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    out.push_back({&(t[i].*which), 0, row, lengths[i]});
    row += lengths[i];
  }
  return out;
}

/// Calls f(segment) for pieces of 1, 4, 7, 10 … rows of each segment in turn.
template <class F>
void in_pieces(const std::vector<SegmentRows>& segments, F f) {
  for (const SegmentRows& s : segments)
    for (int done = 0, n = 1; done < s.rows; done += n, n += 3) {
      n = std::min(n, s.rows - done);
      f(SegmentRows{s.state, s.position + done, s.row + done, n});
    }
}

struct ConvCase {
  int channels, kernel;
  std::vector<int> lengths;
};
TEST_P(CpuOps, Conv1dSilu) {
  for (const ConvCase& c : {ConvCase{100, 4, {5, 1, 2, 30}}, {600, 4, {3, 10}}, {72, 3, {1, 7}}, {72, 2, {1, 7}}}) {
    int rows = 0;
    for (int n : c.lengths) rows += n;
    std::vector<Three> states;
    for (unsigned i = 0; i < c.lengths.size(); ++i)
      states.emplace_back(layout_of(1, 8, DType::bf16, 1, 1, 4, c.channels - 8, c.kernel), 20 + i);
    const Floats x = normal(std::size_t(rows * c.channels), 30), w = normal(std::size_t(c.channels * c.kernel), 31);
    Floats y(x.size()), truth(x.size()), pieces(x.size());
    const auto whole = segments_of(states, c.lengths, &Three::whole), ref = segments_of(states, c.lengths, &Three::ref);
    run_units(k().conv1d_silu, {x.data(), w.data(), y.data(), whole, 0, c.channels, c.kernel});
    conv1d_silu_ref({x.data(), w.data(), truth.data(), ref, 0, c.channels, c.kernel});
    EXPECT_LE(distance(y, truth), 8 * kUnit);  // `kernel` products and sums, silu
    in_pieces(segments_of(states, c.lengths, &Three::pieces), [&](const SegmentRows& s) {
      run_units(k().conv1d_silu, {x.data(), w.data(), pieces.data(), {&s, 1}, 0, c.channels, c.kernel});
    });
    EXPECT_TRUE(same_bits(y, pieces));
    for (const Three& t : states) {
      EXPECT_TRUE(same_bits(t.whole.recurrent.conv, t.ref.recurrent.conv));  // rows that only move
      EXPECT_TRUE(same_bits(t.whole.recurrent.conv, t.pieces.recurrent.conv));
    }
  }
}

struct ScanCase {
  int key_heads, value_heads, key_dim, value_dim;
  std::vector<int> lengths;
};
TEST_P(CpuOps, GdnScan) {
  for (const ScanCase& c : {ScanCase{2, 4, 128, 128, {70, 1, 7, 9}},
                            {4, 8, 32, 32, {140, 3}},
                            {2, 2, 20, 24, {12, 5}},
                            {1, 3, 33, 70, {12, 65}}}) {
    int rows = 0;
    for (int n : c.lengths) rows += n;
    const int stride = 2 * c.key_heads * c.key_dim + c.value_heads * c.value_dim;
    Floats qkv = normal(std::size_t(rows * stride), 40), normed = qkv,
           g = normal(std::size_t(rows * c.value_heads), 41), beta = g;
    for (float& v : g) v = -std::abs(v);
    for (float& v : beta) v = 1 / (1 + std::exp(-v));
    qk_l2norm_ref({normed.data(), rows, stride, c.key_heads, c.key_dim});
    run_units(k().qk_l2norm, {qkv.data(), rows, stride, c.key_heads, c.key_dim});
    EXPECT_LE(distance(qkv, normed), 6 * kUnit);
    std::vector<Three> states;
    for (unsigned i = 0; i < c.lengths.size(); ++i)
      states.emplace_back(layout_of(1, 8, DType::bf16, c.key_heads, c.value_heads, c.key_dim, c.value_dim), 50 + i);
    const auto whole = segments_of(states, c.lengths, &Three::whole), ref = segments_of(states, c.lengths, &Three::ref);
    Floats o(std::size_t(rows * c.value_heads * c.value_dim)), truth(o.size()), pieces(o.size());
    GdnScanArgs a{qkv.data(), g.data(),    beta.data(),   o.data(),  whole,      0,
                  stride,     c.key_heads, c.value_heads, c.key_dim, c.value_dim};
    run_units(k().gdn_scan, a);
    GdnScanArgs b = a;
    b.o = truth.data();
    b.segments = ref;
    gdn_scan_ref(b);
    // Sᵀk and Sᵀq are sums of key_dim terms (sqrt(128) = 11 roundings in the norm), through gates that forget within a
    // few tokens.
    EXPECT_LE(distance(o, truth), 4 * std::sqrt(double(c.key_dim)) * kUnit);
    b.o = pieces.data();
    in_pieces(segments_of(states, c.lengths, &Three::pieces), [&](const SegmentRows& s) {
      GdnScanArgs piece = b;
      piece.segments = {&s, 1};
      run_units(k().gdn_scan, piece);
    });
    EXPECT_TRUE(same_bits(o, pieces));
    for (const Three& t : states) {
      EXPECT_LE(distance(t.whole.recurrent.recurrent, t.ref.recurrent.recurrent),
                4 * std::sqrt(double(c.key_dim)) * kUnit);
      EXPECT_TRUE(same_bits(t.whole.recurrent.recurrent, t.pieces.recurrent.recurrent));
    }
    g[0] += 0.001f;  // one gate of one head of one token, a thousandth off: must be seen
    run_units(k().gdn_scan, a);
    EXPECT_GT(distance(o, truth), 4 * std::sqrt(double(c.key_dim)) * kUnit);
  }
}

struct AttentionCase {
  int heads, kv_heads, dim;
  std::vector<std::pair<int, int>> segments;  // tokens before, rows
};
class CpuAttention : public CpuOps {
 protected:
  /// Conversations whose cache is full up to each segment's end, and beyond it holds NaN: nobody may look there.
  void fill(const AttentionCase& c, DType type) {
    rows = 0;
    states.clear();
    segments.clear();
    const StateLayout layout = layout_of(c.kv_heads, c.dim, type);
    for (auto [before, n] : c.segments) {
      states.push_back(std::make_unique<SequenceState>(layout));
      SequenceState& s = *states.back();
      s.reserve(before + n);
      for (std::byte* block : s.block_data) std::memset(block, 0xff, std::size_t(layout.kv_block_bytes));
      const Floats keys = normal(std::size_t((before + n) * c.kv_heads * c.dim), 60), values = normal(keys.size(), 61);
      const SegmentRows all{&s, 0, 0, before + n};
      kv_append_ref({keys.data(), values.data(), {&all, 1}, 0, c.kv_heads, c.dim});
      segments.push_back({&s, before, rows, n});
      rows += n;
    }
    q = normal(std::size_t(rows * c.heads * c.dim), 62, 2);
    o.assign(q.size(), 0);
    truth = other = o;
  }
  AttentionArgs args(const AttentionCase& c, Floats& out, bool decode) const {
    return {q.data(), out.data(), segments, 0, rows, c.heads, c.kv_heads, c.dim, decode};
  }
  int rows = 0;
  std::vector<std::unique_ptr<SequenceState>> states;
  std::vector<SegmentRows> segments;
  Floats q, o, truth, other;
};
INSTANTIATE_TEST_SUITE_P(Isa, CpuAttention, ::testing::ValuesIn(available_isas()),
                         [](const auto& info) { return info.param; });

// Scores have |q|·|k|/sqrt(dim) ≈ 2·sqrt(dim)/… = a standard deviation of 2: errors of sqrt(dim) roundings in a score
// become relative errors of the weights; the scalar form adds up to 600 exponentials and values one after another
// (sqrt(600) = 24 roundings).
double attention_bound(int dim) {
  return (4 * std::sqrt(double(dim)) + 24) * kUnit;
}

// Prefill over a bf16 cache rounds to 16-bit integers, half a unit at most and 0.29 in the mean (ops/attention/attention_int16.h).
// A score: |q|·|k| ≈ 2·dim, q to 65000 or finer and K to 2^14 or finer in the norm: 0.29·2·sqrt(dim)/2^14 of a weight. The weights
// of 128 keys to 4095 or finer; V to 2^11 of its largest value, which is about three times the mean one.
double int16_bound(int dim) {
  return 0.29 * (2 * std::sqrt(double(dim)) / 0x1p14 + 1 / 4095.0 + 3 / 0x1p11);
}

// Tile registers multiply K and V as they are and two bf16 terms of q and of the weights (ops/attention/attention_amx.h): the first keeps 8 bits,
// the second is rounded to 8 of the rest, 2^-16 of a value at most and 0.29 of that in the mean. Scores deviate by 2, so by 2·0.29·2^-16
// in the mean, relative to a weight; a weight itself by 0.29·2^-16; the sums are float32.
double tiles_bound(int dim) {
  return 3 * 0.29 * 0x1p-16 + attention_bound(dim);
}
bool by_tiles(const std::string& isa, int dim) { return isa == "avx512amx" && dim % 32 == 0; }

double prefill_bound(const std::string& isa, DType type, int dim) {
  return type == DType::f32 ? attention_bound(dim) : by_tiles(isa, dim) ? tiles_bound(dim) : int16_bound(dim);
}

TEST_P(CpuAttention, Prefill) {
  for (DType type : {DType::bf16, DType::f32})
    for (const AttentionCase& c : {AttentionCase{16, 2, 256, {{0, 70}, {300, 3}, {31, 1}, {255, 2}}},
                                   {8, 2, 64, {{0, 40}, {500, 40}}},
                                   {6, 2, 40, {{10, 40}}},
                                   {5, 1, 16, {{10, 90}}}}) {
      fill(c, type);
      attention_ref(args(c, truth, false));
      run_units(k().attention, args(c, o, false));
      const double bound = prefill_bound(k().isa, type, c.dim);
      EXPECT_LE(distance(o, truth), bound) << c.dim;
      for (const SegmentRows& s : segments)
        for (int i = 0; i < s.rows; ++i) {
          const SegmentRows one{s.state, s.position + i, 0, 1};
          const std::int64_t at = std::int64_t(s.row + i) * c.heads * c.dim;
          run_units(
              k().attention,
              AttentionArgs{q.data() + at, other.data() + at, {&one, 1}, 0, 1, c.heads, c.kv_heads, c.dim, false});
        }
      EXPECT_TRUE(same_bits(o, other)) << "row by row, " << c.dim;
      AttentionArgs one_by_one = args(c, other, false);
      one_by_one.packed = false;
      run_units(k().attention, one_by_one);
      EXPECT_TRUE(same_bits(o, other)) << "head by head, " << c.dim;
      AttentionArgs words_one_by_one = args(c, other, false);
      words_one_by_one.paired = false;
      run_units(k().attention, words_one_by_one);
      EXPECT_TRUE(same_bits(o, other)) << "word by word, " << c.dim;
      const std::size_t head = q.size() / 2 / std::size_t(c.dim) * std::size_t(c.dim);
      for (int i = 0; i < c.dim; ++i) q[head + std::size_t(i)] *= 1.25f;  // one query that attends too sharply: must be seen
      run_units(k().attention, args(c, other, false));
      EXPECT_GT(distance(other, truth), bound) << c.dim;
    }
}

// Queries, keys and weights that lie in one value, the largest integers that there are: sums of two must fit 16 bits.
TEST_P(CpuAttention, PrefillOfSingleValues) {
  const AttentionCase c{8, 1, 64, {{100, 40}}};
  fill(c, DType::bf16);
  const int keys = 140;
  Floats k_rows(std::size_t(keys * c.dim)), v_rows(k_rows.size());
  for (int i = 0; i < keys; ++i) {
    k_rows[std::size_t(i * c.dim + i % 4)] = i / 4 % 2 ? 1.75f : -1.75f;
    for (int j = 0; j < c.dim; ++j) v_rows[std::size_t(i * c.dim + j)] = float((i + j) % 2 ? 255 : -255);
  }
  const SegmentRows all{states[0].get(), 0, 0, keys};
  kv_append_ref({k_rows.data(), v_rows.data(), {&all, 1}, 0, c.kv_heads, c.dim});
  for (int r = 0; r < rows * c.heads; ++r)
    for (int i = 0; i < c.dim; ++i)  // and something in the word that is multiplied with it
      q[std::size_t(r * c.dim + i)] = i == r % 4 ? (r / 4 % 2 ? 8.0f : -8.0f) * float(1 + r % 100) : i == (r % 4 ^ 2) ? 1.0f : 0.0f;
  attention_ref(args(c, truth, false));
  run_units(this->k().attention, args(c, o, false));
  EXPECT_LE(distance(o, truth), prefill_bound(this->k().isa, DType::bf16, c.dim));
  AttentionArgs words_one_by_one = args(c, other, false);
  words_one_by_one.paired = false;
  run_units(this->k().attention, words_one_by_one);
  EXPECT_TRUE(same_bits(o, other));
}

TEST_P(CpuAttention, Decode) {
  for (DType type : {DType::bf16, DType::f32})
    for (const AttentionCase& c : {AttentionCase{16, 2, 256, {{0, 1}, {300, 1}, {31, 1}, {511, 1}, {512, 1}, {700, 1}}},
                                   {8, 2, 64, {{700, 1}, {5, 1}}},
                                   {6, 2, 40, {{10, 1}}},
                                   {5, 1, 32, {{10, 1}, {600, 1}}},
                                   {24, 2, 64, {{10, 1}, {600, 1}}}}) {
      fill(c, type);
      attention_ref(args(c, truth, true));
      run_units(k().attention, args(c, o, true));
      EXPECT_LE(distance(o, truth), attention_bound(c.dim)) << c.dim;
      AttentionArgs a = args(c, other, true);
      Floats partial(std::size_t(attention_partial_floats(a)), NAN);
      std::vector<std::int32_t> finished(std::size_t(rows * c.kv_heads), 0);
      a.partial = partial.data();
      a.finished = finished.data();
      run_units(k().attention, a);
      EXPECT_TRUE(same_bits(o, other)) << "shared among threads, " << c.dim;
      EXPECT_EQ(finished, std::vector<std::int32_t>(finished.size(), 0));
      a.packed = false;
      run_units(k().attention, a);
      EXPECT_TRUE(same_bits(o, other)) << "head by head, " << c.dim;
      // The same keys alone: neighbours in the pass leave no trace.
      const SegmentRows last{segments.back().state, segments.back().position, 0, 1};
      const std::int64_t at = std::int64_t(segments.back().row) * c.heads * c.dim;
      Floats alone(std::size_t(c.heads * c.dim));
      run_units(k().attention,
                AttentionArgs{q.data() + at, alone.data(), {&last, 1}, 0, 1, c.heads, c.kv_heads, c.dim, true});
      EXPECT_TRUE(same_bits(alone, Floats(o.begin() + at, o.begin() + at + c.heads * c.dim)));
    }
}

// A NaN or an infinity of one query, key or value reaches every row that reads it, and no other.
TEST_P(CpuAttention, PrefillNotFinite) {
  const AttentionCase c{8, 1, 64, {{150, 60}}};
  for (float bad : {INFINITY, NAN})
    for (auto [where, row] : {std::pair{0, 20}, {1, 20}, {2, 20}, {2, 21}}) {  // q, K, V of an even and an odd key
      // Sums in floats give an infinite key the weight 0 where its score is negative, and that is right.
      const std::string isa = k().isa;
      const bool may_have_no_weight = where == 1 && std::isinf(bad) && (isa.starts_with("neon") || by_tiles(isa, c.dim));
      fill(c, DType::bf16);
      run_units(k().attention, args(c, o, false));
      SequenceState& s = *states[0];
      std::byte* block = s.block_data[0];
      auto* kv = reinterpret_cast<std::uint16_t*>(block + s.layout.kv_offset(0, where == 2, 0));
      if (where == 0) q[std::size_t(row * c.heads + 3) * std::size_t(c.dim)] = bad;
      else kv[where == 2 ? s.layout.v_index(150 + row, 5) : s.layout.k_index(150 + row, 5)] = float_to_bf16(bad);
      run_units(k().attention, args(c, other, false));
      for (int r = 0; r < rows; ++r)
        for (int h = 0; h < c.heads; ++h) {
          const std::int64_t at = std::int64_t(r * c.heads + h) * c.dim;
          const bool reads = where == 0 ? r == row && h == 3 : r >= row;
          bool finite = true;
          for (int i = 0; i < c.dim; ++i) finite = finite && std::isfinite(other[std::size_t(at + i)]);
          if (!reads || !may_have_no_weight) {
            EXPECT_EQ(finite, !reads) << "row " << r << " head " << h << " where " << where;
          }
          if (!reads) {
            EXPECT_EQ(std::memcmp(&o[std::size_t(at)], &other[std::size_t(at)], std::size_t(c.dim) * 4), 0);
          }
        }
    }
}

// Past 8192 keys the ranges are longer; and an infinite score must not reach other heads.
TEST_P(CpuAttention, LongAndInfinite) {
  const AttentionCase c{2, 1, 32, {{9000, 1}}};
  fill(c, DType::bf16);
  attention_ref(args(c, truth, true));
  run_units(k().attention, args(c, o, true));
  EXPECT_LE(distance(o, truth), (4 * std::sqrt(32.0) + 95) * kUnit);  // sqrt(9001) = 95
  q[0] = INFINITY;
  run_units(k().attention, args(c, other, true));
  EXPECT_TRUE(std::isnan(other[0]) || std::isinf(other[0]));
  EXPECT_TRUE(same_bits(Floats(o.begin() + c.dim, o.end()), Floats(other.begin() + c.dim, other.end())));
}

}  // namespace
}  // namespace lily::ops::testing
