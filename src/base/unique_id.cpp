#include "base/unique_id.h"

#include <atomic>
#include <cstdint>
#include <random>

namespace lily {

std::string unique_id(std::string_view prefix) {
  static const std::uint64_t seed = [] {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device();
  }();
  static std::atomic<std::uint32_t> count{0};
  const std::uint32_t n = count++;
  std::uint64_t z = seed + (std::uint64_t{n} + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  constexpr char kHex[] = "0123456789abcdef";
  std::string id(prefix);
  for (int i = 60; i >= 0; i -= 4) id += kHex[z >> i & 15];
  for (int i = 28; i >= 0; i -= 4) id += kHex[n >> i & 15];
  return id;
}

}  // namespace lily
