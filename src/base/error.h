// The one way an operation fails: an exception that carries a message a person can act on.
//
// Every message names the thing at fault (file, tensor, field or flag), what was expected and what was found.
// Errors are thrown where they are found and caught in three places only: the command line (exit 1), the server
// (an HTTP status) and the engine's worker (the request fails, the process goes on). Code that runs on a worker
// thread of the pool must not throw.
#pragma once

#include <stdexcept>
#include <string>

namespace lily {

enum class ErrorCode {
  invalid_argument,  // what the caller passed is wrong: a flag, a field, a shape
  not_found,         // a file, a model, a tensor
  corrupt,           // bytes that contradict themselves: a cut shard, a lying header
  unsupported,       // understood, and not done by this engine
  io,                // the operating system said no
  out_of_memory,
  cancelled,
  numerical,         // a non-finite value where a finite one must be
  internal,          // a fault of ours
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace lily
