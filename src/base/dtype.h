// Element types of tensors and buffers.
#pragma once

#include <cstddef>

namespace lily {

enum class DType { f32, f16, bf16, i8, u8, i32, u32, i64, u64, f64 };

constexpr std::size_t dtype_bytes(DType t) {
  switch (t) {
    case DType::i8:
    case DType::u8: return 1;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::f32:
    case DType::i32:
    case DType::u32: return 4;
    case DType::i64:
    case DType::u64:
    case DType::f64: return 8;
  }
  return 0;
}

/// The safetensors spelling: "F32", "BF16", …
constexpr const char* dtype_name(DType t) {
  switch (t) {
    case DType::f32: return "F32";
    case DType::f16: return "F16";
    case DType::bf16: return "BF16";
    case DType::i8: return "I8";
    case DType::u8: return "U8";
    case DType::i32: return "I32";
    case DType::u32: return "U32";
    case DType::i64: return "I64";
    case DType::u64: return "U64";
    case DType::f64: return "F64";
  }
  return "?";
}

}  // namespace lily
