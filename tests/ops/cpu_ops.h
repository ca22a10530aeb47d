// Running a CPU kernel as the pool may: unit by unit, last unit first, and comparing it with the scalar form.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/dispatch.h"
#include "ops/cpu_kernels.h"

namespace lily::ops::testing {

using Floats = std::vector<float>;
inline constexpr double kUnit = 0x1p-24;  // half a unit in the last place of 1: what one rounding costs

inline Floats normal(std::size_t n, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> d(0, scale);
  Floats v(n);
  for (float& x : v) x = d(random);
  return v;
}

/// All units, backwards, with scratch that holds garbage before each: a unit may rely on nothing that another one left.
template <class Args>
void run_units(const CpuKernel<Args>& kernel, const Args& args) {
  static const std::unique_ptr<std::byte[]> memory(new std::byte[kCpuScratchBytes + 64]);
  const std::size_t offset = (64 - reinterpret_cast<std::uintptr_t>(memory.get()) % 64) % 64;
  for (std::int64_t u = kernel.units(args); u-- > 0;) {
    std::memset(memory.get(), 0xff, std::size_t(1) << 16);
    CpuScratch scratch{memory.get() + offset, kCpuScratchBytes};
    kernel.run(args, u, u + 1, scratch);
  }
}

/// |a − b| / |b| in the Euclidean norm; infinite when a holds a NaN that b has not.
inline double distance(const Floats& a, const Floats& b) {
  double num = 0, den = 1e-300;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double d = double(a[i]) - b[i];
    if (std::isnan(d)) return INFINITY;
    num += d * d;
    den += double(b[i]) * b[i];
  }
  return std::sqrt(num / den);
}
inline bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// A state layout with one layer of each kind.
inline StateLayout layout_of(int kv_heads, int head_dim, DType kv, int key_heads = 1, int value_heads = 1,
                             int key_dim = 4, int value_dim = 4, int kernel = 4) {
  ModelShape s;
  s.layers = 2;
  s.layer_kinds = {LayerKind::gated_deltanet, LayerKind::full_attention};
  s.kv_heads = kv_heads;
  s.head_dim = head_dim;
  s.gdn_key_heads = key_heads;
  s.gdn_value_heads = value_heads;
  s.gdn_key_dim = key_dim;
  s.gdn_value_dim = value_dim;
  s.conv_kernel = kernel;
  return StateLayout(s, kv);
}

/// A test for each kernel set that this machine runs.
class CpuOps : public ::testing::TestWithParam<std::string> {
 protected:
  const CpuKernels& k() const { return cpu_kernels(GetParam()); }
};

}  // namespace lily::ops::testing
