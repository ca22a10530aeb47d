#include "model/names.h"

namespace lily {
namespace {

// Longer ones first: each is also tried as a beginning of the next.
constexpr std::string_view kPrefixes[] = {"model.language_model.", "language_model.model.", "language_model.",
                                          "model."};
constexpr std::string_view kSkipped[] = {"vision_tower.", "visual.", "mtp."};

}  // namespace

std::string_view strip_prefix(std::string_view name) {
  for (std::string_view prefix : kPrefixes)
    if (name.substr(0, prefix.size()) == prefix) return name.substr(prefix.size());
  return name;
}

std::string skipped_group(std::string_view name) {
  const std::string_view module = strip_prefix(name);
  for (std::string_view group : kSkipped)
    if (module.substr(0, group.size()) == group)
      return std::string(name.substr(0, name.size() - module.size() + group.size())) + "*";
  return "";
}

}  // namespace lily
