// Maps the weights' pages ahead of the passes that would otherwise fault them in one by one: the first tokens of a fresh process
// touch experts that it has never touched, and a fault costs as much as reading 64 KiB.
#pragma once

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "model/weights.h"

namespace lily {

/// Works in the background from construction until done or destroyed. Does nothing for a model that leaves other programs less
/// than a tenth of the memory, and where the system cannot (Linux before 5.14): passes then fault as they go.
class Populate {
 public:
  explicit Populate(const Weights& weights);
  ~Populate();
  void wait();  // until done
  Populate(const Populate&) = delete;
  Populate& operator=(const Populate&) = delete;

 private:
  using Range = std::pair<std::uintptr_t, std::uintptr_t>;  // whole pages
  static std::vector<Range> ranges(const Weights& weights);

  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace lily
