// Products with a stack of experts over the groups that expert_sort made.
//
// expert_linear, expert_in. Prefill: a unit is (expert, kBlockRows rows of its matrix). Decode, where most experts have no rows:
// a unit is (place in the list of pairs, kBlockRows rows), and does the whole group when its place is the group's first.
// expert_out. A unit is a block of columns of the output and up to kOutTokens tokens; it walks the experts in order of their
// index and adds weight·(down·h) to the tokens' sums in scratch, so that the order of additions is that of moe_combine.
#include "ops/expert_linear/expert_linear.h"

#include "ops/cpu_units.h"
#include "ops/matmul/matmul.h"

namespace lily::ops::LILY_ISA {

constexpr int kOutBlocks = 2;     // blocks of columns in a unit of expert_out's prefill: h is read once for all of them
constexpr int kSumsAhead = 8;
constexpr int kOutTokens = 4096;  // their sums of kOutBlocks·kBlockRows columns take 2 MB of scratch

struct ExpertUnit {
  std::int64_t expert;
  std::int32_t first, end;  // pairs
  std::int64_t r0;
  int n;
};

static std::int64_t expert_units(bool decode, std::int64_t experts, std::int64_t pairs, std::int64_t rows) {
  return (decode ? pairs : experts) * div_up(rows, kBlockRows);
}

// The expert whose group has the place: groups[it] ≤ place < groups[it + 1].
LILY_SIMD std::int64_t expert_of(const std::int32_t* groups, std::int64_t experts, std::int64_t place) {
  std::int64_t low = 0, high = experts;
  while (high - low > 1) {
    const std::int64_t mid = (low + high) / 2;
    (groups[mid] <= place ? low : high) = mid;
  }
  return low;
}

static ExpertUnit expert_unit(bool decode, const std::int32_t* groups, std::int64_t experts, std::int64_t rows,
                              std::int64_t unit) {
  const std::int64_t block = kBlockRows, blocks = div_up(rows, block);
  ExpertUnit u;
  u.r0 = unit % blocks * block;
  u.n = int(rows - u.r0 < block ? rows - u.r0 : block);
  if (!decode) {
    u.expert = unit / blocks;
  } else {
    const std::int64_t place = unit / blocks;
    u.expert = expert_of(groups, experts, place);
    if (groups[u.expert] != place) {  // not the first of its group: nothing to do
      u.first = u.end = 0;
      return u;
    }
  }
  u.first = groups[u.expert];
  u.end = groups[u.expert + 1];
  return u;
}

// f(m, input rows, whether they are the unit's last) for the unit's pairs, as many at a time as a product takes.
template <class Args, class F>
LILY_SIMD void for_pair_blocks(const Args& a, const ExpertUnit& u, const std::int32_t* pairs, InputRows in, F f) {
  const bool alone = !a.techniques.grouped_experts && !a.decode;  // each pair reads its expert's weights anew
  const std::int32_t most = alone ? 1 : a.techniques.adaptive_tiles ? kBlockTokens : kFullTiles;
  in.techniques = a.techniques;
  for (std::int32_t p = u.first; p < u.end; p += most) {
    in.pairs = pairs + p;
    f(u.end - p <= most ? u.end - p : most, in, u.end - p <= most);
  }
}

LILY_SIMD int most_rows(std::int32_t pairs) { return pairs < kBlockTokens ? pairs : kBlockTokens; }

// What a matrix of the stack is asked for after unit `unit`: the block of the next unit that has rows to do. It is this worker's too
// but at the end of its share.
static ExpertUnit next_unit(bool decode, const std::int32_t* groups, const Matrix& w, std::int64_t unit, std::int64_t units) {
  for (++unit; unit < units; ++unit) {
    const ExpertUnit u = expert_unit(decode, groups, w.count, w.rows, unit);
    if (u.first < u.end) return u;
  }
  return {};
}

std::int64_t expert_linear_units(const ExpertLinearArgs& a) {
  return expert_units(a.decode, a.w.count, std::int64_t(a.rows) * a.k, a.w.rows);
}

void expert_linear_run(const ExpertLinearArgs& a, std::int64_t begin, std::int64_t end, CpuScratch& scratch) {
  const std::int32_t* pairs = a.groups + a.w.count + 1;
  const InputRows rows = {a.activations, a.x, a.q, a.layout, a.w.cols, 0, nullptr, a.x_per_pair ? 1 : a.k};
  Arena arena = {scratch.data};
  float* out = arena.take<float>(kBlockTokens * kBlockRows);
  for (std::int64_t unit = begin; unit < end; ++unit) {
    const ExpertUnit u = expert_unit(a.decode, a.groups, a.w.count, a.w.rows, unit);
    if (u.first == u.end) continue;
    const ExpertUnit next = next_unit(a.decode, a.groups, a.w, unit, expert_linear_units(a));
    const Matrix next_w = a.w.at(next.expert);
    for_pair_blocks(a, u, pairs, rows, [&](int m, const InputRows& in, bool last) __attribute__((always_inline)) {
      product_block(a.w.at(u.expert), u.r0, u.n, in, m, a.decode, {&next_w, next.r0, last ? next.n : 0}, out, arena);
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < u.n; ++j) a.y[in.pairs[i] * a.w.rows + u.r0 + j] = out[i * kBlockRows + j];
    });
  }
}

std::int64_t expert_in_units(const ExpertInArgs& a) {
  return expert_units(a.decode, a.gate.count, std::int64_t(a.rows) * a.k, a.gate.rows);
}

void expert_in_run(const ExpertInArgs& a, std::int64_t begin, std::int64_t end, CpuScratch& scratch) {
  const std::int32_t* pairs = a.groups + a.gate.count + 1;
  const InputRows rows = {a.activations, a.x, a.q, a.layout, a.gate.cols, 0, nullptr, a.k};
  Arena arena = {scratch.data};
  float* gate = arena.take<float>(kBlockTokens * kBlockRows);
  float* up = arena.take<float>(kBlockTokens * kBlockRows);
  for (std::int64_t unit = begin; unit < end; ++unit) {
    const ExpertUnit u = expert_unit(a.decode, a.groups, a.gate.count, a.gate.rows, unit);
    if (u.first == u.end) continue;
    const ExpertUnit next = next_unit(a.decode, a.groups, a.gate, unit, expert_in_units(a));
    const Matrix w_gate = a.gate.at(u.expert), w_up = a.up.at(u.expert), next_gate = a.gate.at(next.expert);
    InputRows next_in = rows;
    next_in.pairs = pairs + next.first;
    const int next_m = next.expert == u.expert ? 0 : most_rows(next.end - next.first);
    for_pair_blocks(a, u, pairs, rows, [&](int m, const InputRows& in, bool last) __attribute__((always_inline)) {
      product_block(w_gate, u.r0, u.n, in, m, a.decode, {&w_up, u.r0, u.n}, gate, arena);
      product_block(w_up, u.r0, u.n, in, m, a.decode, {&next_gate, next.r0, last ? next.n : 0, &next_in, next_m}, up, arena);
      for (int i = 0; i < m; ++i) {
        float* h = a.h + in.pairs[i] * a.gate.rows + u.r0;
        for (int j = 0; j < u.n; j += kLanes) {
          const int at = i * kBlockRows + j;
          store_part(h + j, silu(load(gate + at)) * load(up + at), u.n - j < kLanes ? u.n - j : int(kLanes));
        }
      }
    });
  }
}

constexpr std::int64_t kOutCols = kOutBlocks * kBlockRows;
LILY_SIMD std::int64_t out_cols(const ExpertOutArgs& a) { return a.decode ? std::int64_t(kBlockRows) : kOutCols; }
std::int64_t expert_out_units(const ExpertOutArgs& a) {
  return div_up(a.rows, kOutTokens) * div_up(a.down.rows, out_cols(a));
}

// The first place ≥ from in an expert's pairs (ascending up to end) that belongs to token ≥ `token`.
static std::int32_t first_pair_of(const std::int32_t* pairs, std::int32_t from, std::int32_t end, std::int64_t token, int k) {
  while (from < end) {
    const std::int32_t mid = from + (end - from) / 2;
    if (pairs[mid] < token * k) from = mid + 1;
    else end = mid;
  }
  return from;
}

// sums[token − t0][kOutCols] += weight·(down·h) of every pair of tokens t0 … t0 + tokens, experts ascending. next_r0: where the rows of
// the unit after this one begin, or −1.
static void add_experts(const ExpertOutArgs& a, std::int64_t t0, int tokens, std::int64_t r0, int n, std::int64_t next_r0, float* sums,
                        Arena arena) {
  const std::int32_t* pairs = a.groups + a.down.count + 1;
  const InputRows rows = {a.activations, a.h, a.q, a.layout, a.down.cols, 0, nullptr, 1};
  float* out = arena.take<float>(kBlockTokens * kBlockRows);
  const bool all = tokens == a.rows;
  const std::int32_t all_pairs = a.groups[a.down.count];
  const std::int64_t first = expert_of(a.groups, a.down.count, 0);
  for (std::int64_t e = first, after; e < a.down.count; e = after) {
    ExpertUnit u = {e, a.groups[e], a.groups[e + 1], r0, n};
    after = u.end < all_pairs ? expert_of(a.groups, a.down.count, u.end) : a.down.count;
    if (!all) {
      u.first = first_pair_of(pairs, u.first, u.end, t0, a.k);
      u.end = first_pair_of(pairs, u.first, u.end, t0 + tokens, a.k);
    }
    if (u.first == u.end) continue;
    // After the last expert the next unit begins with the first one.
    const bool last_one = after == a.down.count, more = !last_one || next_r0 >= 0;
    const std::int64_t next_e = last_one ? first : after;
    const Matrix w = a.down.at(e), next_w = a.down.at(next_e);
    InputRows next_in = rows;
    next_in.pairs = pairs + a.groups[next_e];
    const int next_m = more ? most_rows(a.groups[next_e + 1] - a.groups[next_e]) : 0;
    for_pair_blocks(a, u, pairs, rows, [&](int m, const InputRows& in, bool last) __attribute__((always_inline)) {
      for (int c = 0; c < n; c += kBlockRows) {
        const int cols = n - c < kBlockRows ? n - c : kBlockRows, left = n - c - cols;
        NextRows next = {&w, r0 + c + cols, left < kBlockRows ? left : kBlockRows};
        if (left == 0) next = {&next_w, last_one ? next_r0 : r0, last && more ? (n < kBlockRows ? n : kBlockRows) : 0, &next_in, next_m};
        product_block(w, r0 + c, cols, in, m, a.decode, next, out, arena);
        const auto sums_of = [&](int i) __attribute__((always_inline)) { return sums + (in.pairs[i] / a.k - t0) * kOutCols + c; };
        for (int i = 0; i < m; ++i) {
          if (i + kSumsAhead < m)  // tokens lie anywhere
            for (int j = 0; j < cols; j += 16) __builtin_prefetch(sums_of(i + kSumsAhead) + j, 1);
          const F32 p = set1(a.weight[in.pairs[i]]);
          float* s = sums_of(i);
          for (int j = 0; j < cols; j += kLanes) store(s + j, load(s + j) + p * load(out + i * kBlockRows + j));
        }
      }
    });
  }
}

void expert_out_run(const ExpertOutArgs& a, std::int64_t begin, std::int64_t end, CpuScratch& scratch) {
  const std::int64_t block = out_cols(a), blocks = div_up(a.down.rows, block);
  Arena arena = {scratch.data};
  float* sums = arena.take<float>(kOutTokens * kOutCols);
  for (std::int64_t unit = begin; unit < end; ++unit) {
    const std::int64_t r0 = unit % blocks * block, t0 = unit / blocks * kOutTokens;
    const int n = int(a.down.rows - r0 < block ? a.down.rows - r0 : block);
    const int tokens = int(a.rows - t0 < kOutTokens ? a.rows - t0 : std::int64_t(kOutTokens));
    memset(sums, 0, std::size_t(tokens) * kOutCols * sizeof(float));
    // The next unit's rows are asked for where it has as many; it is this worker's too but at the end of its share.
    const bool follows = r0 + 2 * block <= a.down.rows;
    add_experts(a, t0, tokens, r0, n, follows ? r0 + block : -1, sums, arena);
    for (int t = 0; t < tokens; ++t) {
      const std::int64_t at = (t0 + t) * a.down.rows + r0;
      const F32 gate = sigmoid(set1(a.shared_gate[t0 + t]));
      for (int j = 0; j < n; j += kLanes) {
        const int lanes = n - j < kLanes ? n - j : int(kLanes);
        const F32 sum = load(sums + t * kOutCols + j) + gate * load_part(a.shared + at + j, lanes);
        store_part(a.residual + at + j, load_part(a.residual + at + j, lanes) + sum, lanes);
      }
    }
  }
}

}  // namespace lily::ops::LILY_ISA
