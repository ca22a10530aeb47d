// bfloat16 and float16 as bit patterns, converted in scalar code. Kernels have their own vector forms.
#pragma once

#include <cstdint>
#include <cstring>

namespace lily {

/// Always inlined: these are also compiled into objects for newer instruction sets, where an out-of-line copy could be
/// picked by the linker for everybody.
#define LILY_ALWAYS_INLINE inline __attribute__((always_inline))

LILY_ALWAYS_INLINE float bits_to_float(std::uint32_t u) {
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
LILY_ALWAYS_INLINE std::uint32_t float_to_bits(float f) {
  std::uint32_t u;
  std::memcpy(&u, &f, 4);
  return u;
}

LILY_ALWAYS_INLINE float bf16_to_float(std::uint16_t h) { return bits_to_float(std::uint32_t(h) << 16); }

/// Round to nearest even; NaN stays NaN.
LILY_ALWAYS_INLINE std::uint16_t float_to_bf16(float f) {
  const std::uint32_t u = float_to_bits(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return std::uint16_t((u >> 16) | 0x40u);
  return std::uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/// IEEE binary16 to float, subnormals included.
LILY_ALWAYS_INLINE float f16_to_float(std::uint16_t h) {
  const std::uint32_t sign = std::uint32_t(h & 0x8000u) << 16;
  const std::uint32_t exp = (h >> 10) & 0x1fu;
  std::uint32_t man = h & 0x3ffu;
  if (exp == 0x1fu) return bits_to_float(sign | 0x7f800000u | (man << 13));
  if (exp == 0) {  // zero or subnormal: man * 2^-24, exact in float
    const float v = float(man) * 5.9604644775390625e-08f;
    return sign ? -v : v;
  }
  return bits_to_float(sign | ((exp + 112u) << 23) | (man << 13));
}

}  // namespace lily
