// libFuzzer target: a safetensors header. Whatever comes in, the parser either throws lily::Error or returns tensors that
// tile the file. The first byte chooses: the rest is a whole file, or only the JSON of a header (so that the length field need
// not be guessed) of a file as long as the last offsets say.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace {

void check(std::span<const std::byte> head, std::uint64_t file_size) {
  try {
    const lily::SafetensorsHeader header = lily::parse_safetensors_header(head, file_size, "fuzz");
    std::uint64_t at = 0;
    for (const lily::TensorInfo& t : header.tensors) {
      if (t.offset < at || t.bytes > file_size || t.offset > file_size - t.bytes) std::abort();
      at = t.offset + t.bytes;
      std::uint64_t elements = 1;
      for (std::int64_t dim : t.shape) {
        if (dim < 0) std::abort();
        elements *= std::uint64_t(dim);
      }
      if (t.dtype && elements * lily::dtype_bytes(*t.dtype) != t.bytes) std::abort();
      (void)lily::describe(t);
    }
  } catch (const lily::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    check(std::as_bytes(std::span(rest.data(), rest.size())), rest.size());
    return 0;
  }
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[std::size_t(i)] = char(std::uint64_t(rest.size()) >> (8 * i));
  file += rest;
  // Sizes that make some of the inputs complete files: bytes of data, from the first byte.
  check(std::as_bytes(std::span(file.data(), file.size())), file.size() + data[0] / 2);
  return 0;
}
