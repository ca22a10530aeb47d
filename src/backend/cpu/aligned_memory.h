// Large zeroed memory that starts on a page, in huge pages where the system grants them.
#pragma once

#include <cstddef>

namespace lily {

class AlignedMemory {
 public:
  AlignedMemory() = default;
  explicit AlignedMemory(std::size_t bytes);  // Error(out_of_memory) names the size
  ~AlignedMemory();
  AlignedMemory(AlignedMemory&& o) noexcept : data_(o.data_), bytes_(o.bytes_) { o.data_ = nullptr, o.bytes_ = 0; }
  AlignedMemory& operator=(AlignedMemory&& o) noexcept;
  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace lily
