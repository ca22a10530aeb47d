#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "base/error.h"

namespace lily {

void Backend::switch_off(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    throw Error(ErrorCode::invalid_argument, this->name() + " has no technique '" + name + "', nor any other to switch off");
}

std::unique_ptr<Backend> make_backend(const Weights& weights, const BackendOptions& options) {
  if (options.name == "auto" || options.name == "cpu") return std::make_unique<CpuBackend>(weights, options);
  if (options.name == "reference") {
    // Float32 whatever is asked: that is what it is for.
    auto reference = std::make_unique<ReferenceBackend>(weights, DType::f32, options.chunk > 0 ? options.chunk : 512);
    reference->switch_off(options.off);
    return reference;
  }
  if (options.name == "cuda" || options.name == "metal")
    throw Error(ErrorCode::unsupported, "this build has no " + options.name + " back end; it has: cpu, reference");
  throw Error(ErrorCode::invalid_argument, "--backend '" + options.name + "' is none of: auto, cpu, reference, cuda, metal");
}

}  // namespace lily
