#include "model/find.h"

#include <cstdlib>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include <fmt/format.h>

#include "base/error.h"
#include "base/input_file.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

bool holds_model(const fs::path& dir) {
  std::error_code ignored;
  return fs::is_directory(dir, ignored) && (is_there(dir / "config.json") || is_there(dir / "tokenizer.json"));
}

fs::path program_dir() {
  std::error_code error;
#ifdef __APPLE__
  char path[4096];
  uint32_t size = sizeof(path);
  if (_NSGetExecutablePath(path, &size) != 0) return {};
  const fs::path program = fs::canonical(path, error);
#else
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
#endif
  return error ? fs::path() : program.parent_path();
}

/// A name is looked up below a directory: it may not climb out of it.
bool stays_below(const fs::path& name) {
  if (name.empty() || name.is_absolute()) return false;
  for (const fs::path& part : name)
    if (part == "..") return false;
  return true;
}

}  // namespace

fs::path models_cache_dir() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) return fs::path(cache) / "lily" / "models";
  if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".cache" / "lily" / "models";
  return {};
}

std::vector<fs::path> bundled_model_dirs() {
  std::vector<fs::path> dirs;
  if (const fs::path program = program_dir(); !program.empty())
    dirs.push_back((program / ".." / "share" / "lily" / "models").lexically_normal());
#ifdef LILY_MODELS_DIR
  dirs.push_back(LILY_MODELS_DIR);
#endif
  return dirs;
}

fs::path find_model(const std::string& given) {
  std::string model = given;
  while (model.size() > 1 && model.ends_with('/')) model.pop_back();  // a shell's completion adds it
  std::vector<fs::path> looked{fs::path(model)};
  if (const fs::path cache = models_cache_dir(); !cache.empty() && stays_below(model)) looked.push_back(cache / model);
  if (model == "tiny")
    for (const fs::path& dir : bundled_model_dirs()) looked.push_back(dir / "tiny");
  for (const fs::path& dir : looked)
    if (!model.empty() && holds_model(dir)) return dir;

  std::error_code ignored;
  if (!model.empty() && fs::is_directory(model, ignored))
    throw Error(ErrorCode::not_found,
                fmt::format("{}: the directory holds neither config.json nor tokenizer.json: not a checkpoint", model));
  if (!model.empty() && fs::exists(model, ignored))
    throw Error(
        ErrorCode::not_found,
        fmt::format("{}: expected a checkpoint directory, found a file (give the directory it lies in)", model));
  std::string places;
  for (const fs::path& dir : looked) places += (places.empty() ? "" : ", ") + dir.string();
  throw Error(ErrorCode::not_found, fmt::format("no model \"{}\": looked at {}; give a checkpoint directory, fetch one "
                                                "with `lily pull`, or use the bundled `tiny`",
                                                model, places));
}

}  // namespace lily
