// Faults that the HTTP fuzzer must find: LILY_FUZZ_PLANTED names one. They lie on paths that
// have a character which no route has, and no seed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/http.h"

namespace lily::fuzz {

class Planted {
 public:
  /// True: this request was answered, or not, in a wrong way.
  bool handle(const std::shared_ptr<http::Exchange>& exchange);
  /// App::refuse, or what should have been one.
  http::Reply refuse(int status, const std::string& why) const;

 private:
  const std::string name_ = name();
  bool changed_ = false;
  std::vector<std::shared_ptr<http::Exchange>> held_;
  static std::string name();
};

}  // namespace lily::fuzz
