// The MODEL argument of every command → the directory it means.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lily {

/// Where `pull` puts checkpoints and names are looked up: $XDG_CACHE_HOME/lily/models, or ~/.cache/lily/models. Empty
/// when neither XDG_CACHE_HOME nor HOME is set.
std::filesystem::path models_cache_dir();

/// Where bundled models may lie: beside the installed program, then in the source tree it was built from.
std::vector<std::filesystem::path> bundled_model_dirs();

/// A directory with a config.json or a tokenizer.json (some commands need only the latter); the name of one under
/// models_cache_dir(); or "tiny", the bundled model. Error(not_found) says where it looked and what to do.
std::filesystem::path find_model(const std::string& model);

}  // namespace lily
