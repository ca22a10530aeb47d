// The matrix kernels of each instruction set that this machine can run, and random inputs for them.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/dispatch.h"
#include "base/half.h"
#include "ops/cpu_kernels.h"

namespace lily::ops::testing {

struct Isa {
  const char* name;
  CpuKernel<QuantizeRowsArgs> quantize_rows;
  CpuKernel<LinearArgs> linear;
  CpuKernel<ExpertLinearArgs> expert_linear;
  CpuKernel<ExpertInArgs> expert_in;
  CpuKernel<ExpertOutArgs> expert_out;
};

/// The best last.
inline std::vector<Isa> available_isas() {
  std::vector<Isa> out;
  for (const std::string& name : lily::available_isas()) {
    const CpuKernels& k = cpu_kernels(name);
    out.insert(out.begin(), {k.isa, k.quantize_rows, k.linear, k.expert_linear, k.expert_in, k.expert_out});
  }
  return out;
}

/// 64-byte aligned scratch as the thread pool gives it.
struct Scratch {
  std::unique_ptr<std::byte[]> memory{new std::byte[kCpuScratchBytes + 64]};
  CpuScratch view{memory.get() + (64 - reinterpret_cast<std::uintptr_t>(memory.get()) % 64) % 64, kCpuScratchBytes};
};

template <class Args>
void run_all(const CpuKernel<Args>& kernel, const Args& args, CpuScratch& scratch) {
  kernel.run(args, 0, kernel.units(args), scratch);
}

/// A random stack of matrices in memory of exactly its size. group 0: plain, of type `scale_type`.
struct TestMatrix {
  std::vector<std::byte> data, scales, biases;
  Matrix m;
  TestMatrix(std::int64_t count, std::int64_t rows, std::int64_t cols, int bits, int group, DType scale_type, unsigned seed) {
    std::mt19937 random(seed);
    m.count = count, m.rows = rows, m.cols = cols;
    m.bits = group ? bits : int(dtype_bytes(scale_type)) * 8;
    m.group = group;
    m.plain = m.scale_type = scale_type;
    m.row_bytes = cols * m.bits / 8;
    m.stack_bytes = m.row_bytes * rows;
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    if (!group) {
      fill(data, count * rows * cols, scale_type, [&] { return uniform(random); });
    } else {
      data.resize(std::size_t(count * m.stack_bytes));
      for (auto& b : data) b = std::byte(random());
      const std::int64_t groups = cols / group;
      m.scale_row_bytes = groups * std::int64_t(dtype_bytes(scale_type));
      m.scale_stack_bytes = m.scale_row_bytes * rows;
      fill(scales, count * rows * groups, scale_type, [&] { return 0.02f * uniform(random); });
      fill(biases, count * rows * groups, scale_type, [&] { return 0.1f * uniform(random); });
    }
    m.data = data.data(), m.scales = scales.data(), m.biases = biases.data();
  }
  static float value(const std::byte* p, DType type, std::int64_t i) {
    if (type == DType::f32) {
      float f;
      std::memcpy(&f, p + 4 * i, 4);
      return f;
    }
    std::uint16_t h;
    std::memcpy(&h, p + 2 * i, 2);
    return type == DType::bf16 ? bf16_to_float(h) : f16_to_float(h);
  }

 private:
  template <class F>
  static void fill(std::vector<std::byte>& to, std::int64_t n, DType type, F f) {
    to.resize(std::size_t(n) * dtype_bytes(type));
    for (std::int64_t i = 0; i < n; ++i) {
      const float v = f();
      std::uint16_t h = float_to_bf16(v);
      if (type == DType::f16) {  // of normal range, mantissa cut
        const std::uint32_t u = float_to_bits(v), e = u >> 23 & 255;
        h = e < 113 ? 0 : std::uint16_t((u >> 16 & 0x8000) | (e - 112) << 10 | (u >> 13 & 1023));
      }
      if (type == DType::f32) std::memcpy(to.data() + 4 * i, &v, 4);
      else std::memcpy(to.data() + 2 * i, &h, 2);
    }
  }
};

/// Code k of a row, bit by bit.
inline int code_at(const std::byte* row, std::int64_t k, int bits) {
  int code = 0;
  for (int b = 0; b < bits; ++b) {
    const std::int64_t at = k * bits + b;
    code |= (int(row[at / 8]) >> (at % 8) & 1) << b;
  }
  return code;
}

inline std::vector<float> random_rows(std::int64_t rows, std::int64_t width, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(std::size_t(rows * width));
  for (auto& v : x) v = normal(random) * (random() % 50 == 0 ? 20.0f : 1.0f);
  return x;
}

}  // namespace lily::ops::testing
