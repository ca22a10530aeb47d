// From the common options to a model that is ready to work.
#pragma once

#include <filesystem>
#include <memory>

#include "base/options.h"
#include "engine/engine.h"
#include "model/load.h"
#include "text/tokenizer.h"

namespace lily::cli {

struct Ready {
  std::filesystem::path dir;
  std::unique_ptr<LoadedModel> model;  // outlives the engine
  std::unique_ptr<Engine> engine;
};

/// What the common options say to a back end.
BackendOptions backend_options(const Settings& settings);

/// Finds, checks and maps the model and makes its back end. `max_context` 0: the model's; `snapshots` as EngineOptions
/// has it.
Ready load(const Settings& settings, int max_context = 0, int snapshots = EngineOptions().snapshots);

/// The tokenizer of `ready`'s directory. Error(corrupt) when it has ids that the model's vocabulary does not.
Tokenizer load_tokenizer(const Ready& ready);

}  // namespace lily::cli
