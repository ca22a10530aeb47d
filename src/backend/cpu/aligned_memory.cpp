#include "backend/cpu/aligned_memory.h"

#include <sys/mman.h>

#include <string>
#include <utility>

#include "base/error.h"

namespace lily {

AlignedMemory::AlignedMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED)
    throw Error(ErrorCode::out_of_memory, "no memory for " + std::to_string(bytes >> 20) + " MiB of working space");
  data_ = static_cast<std::byte*>(p);
#if defined(__linux__)
  madvise(p, bytes, MADV_HUGEPAGE);  // a wish
#endif
}

AlignedMemory::~AlignedMemory() {
  if (data_) munmap(data_, bytes_);
}

AlignedMemory& AlignedMemory::operator=(AlignedMemory&& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(bytes_, o.bytes_);
  return *this;
}

}  // namespace lily
