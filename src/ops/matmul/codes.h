// Codes and scales of quantised rows as the checkpoint stores them, unpacked into scratch.
#pragma once

#include "ops/cpu_units.h"
#include "ops/matmul/dot.h"
#include "ops/matmul/matmul.h"

namespace lily::ops::LILY_ISA {

/// Codes k … k + n − 1 of a row, one a byte. k is a multiple of 32, or of 8; n is any. Reads no byte beyond the last code's.
LILY_SIMD void unpack_codes(const std::byte* row, int bits, std::int64_t k, std::int64_t n, std::uint8_t* out) {
  const auto* p = reinterpret_cast<const std::uint8_t*>(row) + k * bits / 8;
  if (bits == 8) {
    memcpy(out, p, std::size_t(n));
  } else if (bits == 4) {
    for (std::int64_t i = 0; i < n / 2; ++i) {
      out[2 * i] = p[i] & 15;
      out[2 * i + 1] = p[i] >> 4;
    }
    if (n % 2) out[n - 1] = p[n / 2] & 15;
  } else {
    for (std::int64_t i = 0; i < n; i += 8) {  // 8 codes are `bits` bytes
      const std::int64_t codes = n - i < 8 ? n - i : 8;
      std::uint64_t u = 0;
      memcpy(&u, p + i / 8 * bits, std::size_t((codes * bits + 7) / 8));
      for (int j = 0; j < codes; ++j) out[i + j] = std::uint8_t(u >> (j * bits) & ((1u << bits) - 1u));
    }
  }
}

/// Even and odd bytes of n (a multiple of 32), each into its own array.
LILY_SIMD void split_bytes(const std::uint8_t* in, std::int64_t n, std::uint8_t* even, std::uint8_t* odd) {
  for (std::int64_t i = 0; i < n / 2; ++i) {
    even[i] = in[2 * i];
    odd[i] = in[2 * i + 1];
  }
}

LILY_SIMD float load_scalar(const std::byte* p, DType type, std::int64_t i) {
  if (type == DType::f32) {
    float f;
    memcpy(&f, p + 4 * i, 4);
    return f;
  }
  std::uint16_t h;
  memcpy(&h, p + 2 * i, 2);
  return type == DType::f16 ? f16_to_float(h) : bf16_to_float(h);
}

/// n stored floats as float32.
LILY_SIMD void load_floats(const std::byte* p, DType type, std::int64_t n, float* out) {
  std::int64_t i = 0;
  if (type == DType::bf16) {
    for (; i + kLanes <= n; i += kLanes) store(out + i, load_bf16(reinterpret_cast<const std::uint16_t*>(p) + i));
  } else if (type == DType::f16) {
    for (; i + kLanes <= n; i += kLanes) store(out + i, load_f16(reinterpret_cast<const std::uint16_t*>(p) + i));
  }
  for (; i < n; ++i) out[i] = load_scalar(p, type, i);
}

}  // namespace lily::ops::LILY_ISA
