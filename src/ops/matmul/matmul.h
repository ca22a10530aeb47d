// What linear and the expert ops share on the CPU: one block of rows of a matrix times some rows of input.
//
// Three forms, each with a fixed order of additions, so that a row's result never depends on its neighbours, on how many rows
// there are, on the cut into blocks or on threads:
//   dense  float32 rows: a weight row is dequantised, then kLanes running sums over the columns (prefill and decode alike)
//   gemv   quantised rows, decode: lanes along the columns, a weight read once for up to kGemvRows rows of input
//   gemm   quantised rows, prefill: a lane is a weight row; sums group by group in the order of the columns
#pragma once

#include <string.h>

#include "base/half.h"
#include "model/weights.h"
#include "ops/cpu_kernels.h"
#include "ops/simd.h"

namespace lily::ops::LILY_ISA {

constexpr int kBlockRows = 64;     // rows of a matrix that a block covers, at most
constexpr int kBlockTokens = 256;  // rows of input that a block takes, at most
constexpr int kGemvBlock = 32;     // rows of a matrix in a unit of decode
constexpr int kGemvRows = 8;       // rows of input that gemv takes at once

/// Hands out a worker's scratch. Copies forget what they handed out when they go. Needs, at their largest, for matrices of
/// `cols` columns: dense 64·cols bytes, gemv 32·cols, gemm 460 KB whatever cols is, beside what the op itself has taken, 2 MB at most
/// (expert_out): cols up to 16384 always fit (backend/cpu/shape_limits.h).
struct Arena {
  std::byte* at;
  template <class T>
  inline __attribute__((always_inline)) T* take(std::int64_t n) {
    T* p = reinterpret_cast<T*>(at);
    at += (n * std::int64_t(sizeof(T)) + 63) / 64 * 64;
    return p;
  }
};

/// The rows of input: row i is row first + i of the array, or pairs[i] / divide of it when there are pairs.
struct InputRows {
  plan::Activations activations;
  const float* x;       // [.., width] when activations is f32
  const std::byte* q;   // quantised rows otherwise
  QuantLayout layout;
  std::int64_t width;
  std::int64_t first;
  const std::int32_t* pairs;
  int divide;
  Techniques techniques = {};  // without adaptive_tiles, m is kFullTiles at most
};
/// Rows of input that fill tiles of every instruction set.
constexpr int kFullTiles = 240;
LILY_SIMD std::int64_t row_index(const InputRows& in, int i) { return in.pairs ? in.pairs[i] / in.divide : in.first + i; }
LILY_SIMD const std::byte* quantized_row(const InputRows& in, int i) {
  return in.q + row_index(in, i) * in.layout.row_bytes();
}
LILY_SIMD bool two_terms(const InputRows& in) { return in.activations == plan::Activations::int16; }

/// Rows that the caller will ask for next (of one matrix, n 0: unknown), and the input that they will meet where it is another one (m
/// rows of `in`, at most kBlockTokens): gemm has them brought closer while it multiplies.
struct NextRows {
  const Matrix* w;
  std::int64_t r0;
  int n;
  const InputRows* in = nullptr;
  int m = 0;
};

/// out[i·kBlockRows + o] = w[r0 + o]·row i, for o < n ≤ kBlockRows and i < m ≤ kBlockTokens. Needs no gemv_prepare.
/// Lanes o ≥ n of a row of out are scratch.
void product_block(const Matrix& w, std::int64_t r0, int n, const InputRows& in, int m, bool decode, const NextRows& next,
                   float* out, Arena arena);

void dense_block(const Matrix& w, std::int64_t r0, int n, const InputRows& in, int m, float* out, Arena arena);
void gemm_block(const Matrix& w, std::int64_t r0, int n, const InputRows& in, int m, const NextRows& next, float* out,
                Arena arena);

/// Input rows as gemv reads them; made once, used for any number of blocks of any matrix with the same columns, group and bits.
struct GemvInput {
  int m;  // 1 … kGemvRows
  bool two;
  const std::byte* q[kGemvRows];   // terms of `cols` bytes, in the order that the codes have
  const float* scales[kGemvRows];  // of one unit of the last term, by scale groups, several times over: as the rows of a tile lie
  const float* sums[kGemvRows];    // what a weight group's bias multiplies
};
void gemv_prepare(const InputRows& in, int m, const Matrix& w, GemvInput* out, Arena* arena);
void gemv_block(const Matrix& w, std::int64_t r0, int n, const GemvInput& in, const NextRows& next, float* out, Arena arena);

}  // namespace lily::ops::LILY_ISA
