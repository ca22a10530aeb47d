#include "cli/load.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "model/find.h"

namespace lily::cli {

namespace {
plan::Activations activations(const std::string& name) {
  return name == "int8" ? plan::Activations::int8 : plan::Activations::int16;
}
}  // namespace

BackendOptions backend_options(const Settings& settings) {
  BackendOptions o;
  o.name = settings.backend;
  o.threads = settings.threads;
  o.exact = settings.exact;
  o.prefill_activations = activations(settings.prefill_activations);
  o.decode_activations = activations(settings.decode_activations);
  return o;
}

Ready load(const Settings& settings, int max_context, int snapshots) {
  Ready r;
  r.dir = find_model(settings.model);
  r.model = std::make_unique<LoadedModel>(load_model(r.dir, {.mlock = settings.mlock}));
  const int window = r.model->shape.max_context;
  if (max_context != 0 && (max_context < 2 || max_context > window)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--max-context {}: expected 2 to {}, this model's window, or 0 for all of it", max_context,
                            window));
  }
  for (const std::string& line : r.model->report.lines) log_debug(line);
  for (const std::string& line : r.model->report.warnings) log_warning(line);

  EngineOptions options;
  options.max_context = max_context;
  options.snapshots = snapshots;
  options.backend = backend_options(settings);
  r.engine = std::make_unique<Engine>(r.model->weights, options);
  log_debug(fmt::format("back end: {}, passes of up to {} tokens", r.engine->backend().name(),
                        r.engine->backend().max_rows()));
  return r;
}

Tokenizer load_tokenizer(const Ready& ready) {
  Tokenizer tokenizer = Tokenizer::load(ready.dir);
  if (tokenizer.vocab_size() > ready.engine->shape().vocab) {
    throw Error(ErrorCode::corrupt,
                fmt::format("{}: tokenizer.json has ids up to {}, and config.json a vocab_size of {}",
                            ready.dir.string(), tokenizer.vocab_size() - 1, ready.engine->shape().vocab));
  }
  const int vocab = ready.engine->shape().vocab;
  for (const std::int32_t id : tokenizer.end_tokens())
    if (id >= vocab)
      log_warning(fmt::format("{}: eos_token_id {} is ignored: the model's ids end at {}",
                              (ready.dir / "generation_config.json").string(), id, vocab - 1));
  return tokenizer;
}

}  // namespace lily::cli
