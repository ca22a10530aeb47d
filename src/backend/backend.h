// What the engine asks of a device: keep the weights, keep conversations' state, run passes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/state.h"
#include "model/weights.h"
#include "ops/techniques.h"
#include "plan/op.h"

namespace lily {

struct BackendOptions {
  std::string name = "auto";  // auto, cpu, reference (cuda, metal when built)
  int threads = 0;            // 0: chosen by the back end
  bool exact = false;         // float32 activations and KV
  plan::Activations prefill_activations = plan::Activations::int8;  // int8, or int16 ("bf16" on the command line)
  plan::Activations decode_activations = plan::Activations::int16;  // likewise
  int chunk = 0;              // most tokens of one prefill pass; 0: chosen by the back end
  std::string isa;            // cpu: force a kernel set ("avx2", …); empty: the best this machine has
  std::vector<std::string> off;  // names of techniques to do without (ops/techniques.h)
};

/// One conversation's part of a pass.
struct Segment {
  SequenceState* state;                  // advanced by ids.size() tokens
  std::span<const std::int32_t> ids;
  std::vector<std::int32_t> logits_of;   // which of `ids` (indices, ascending) want logits
};

/// Tokens of the next of the fewest passes that `left` tokens need, all of nearly equal length (`longest` is max_rows()): a short
/// rest would read every expert's weights again for a few tokens. Sessions and the bench read prompts in such passes.
inline std::int64_t next_pass(std::int64_t left, std::int64_t longest) {
  const std::int64_t passes = (left + longest - 1) / longest;
  return (left + passes - 1) / passes;
}

/// Called after each layer with the residual stream [rows, hidden], for tests and `lily logits --hidden`.
using LayerHook = std::function<void(int layer, const float* x, int rows)>;

/// What the machine can do at most, measured now.
struct MachineLimits {
  double read_bytes_per_s = 0;  // streaming through the weights
  double int8_ops_per_s = 0;    // multiplications and additions of the int8 matrix products; 0 where there are none
};

/// Seconds by kind of work: the ops of a stage, "attention" or "conv1d_silu+linear".
using StageTimes = std::map<std::string, double>;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;         // "cpu (avx512vnni, 2 threads)"
  /// What the bits of a pass depend on besides weights and ids, with all techniques on: two back ends that say the same compute the
  /// same. For programs, not people.
  virtual std::string arithmetic() const = 0;
  virtual const StateLayout& state_layout() const = 0;
  virtual int max_rows() const = 0;             // longest prefill pass
  virtual const plan::Plan& plan(plan::Phase phase) const = 0;  // as compiled: fused, with stages
  virtual std::int64_t scratch_bytes() const = 0;               // arenas at their largest

  /// Runs the segments' tokens through the model in the arithmetic of `phase`; writes the wanted rows of logits
  /// [sum of logits_of, vocab] in segment order to `logits` (may be null when none are wanted).
  /// decode: each segment has one token. The sum of rows is at most max_rows().
  /// Errors: Error(invalid_argument) for an id outside the vocabulary, before anything changes.
  virtual void run(plan::Phase phase, std::span<Segment> segments, float* logits, const LayerHook& hook = {}) = 0;

  /// The techniques that switch_off() knows.
  virtual std::vector<ops::Technique> techniques() const { return {}; }
  /// From the next pass on, does without the techniques of these names and with all others. plan() is another one afterwards.
  /// Error(invalid_argument) for a name that is not among techniques(); nothing has changed then.
  virtual void switch_off(const std::vector<std::string>& names);

  /// Adds the seconds that the stages of each pass take to `times` from now on; null: no longer. A back end that cannot tell adds
  /// nothing. Passes take a little longer.
  virtual void time_stages(StageTimes* times) { (void)times; }

  /// Returns when all weights are in memory, so that the next pass waits for no file.
  virtual void load_weights() {}

  /// Takes about half a second. The reference back end has no limits worth measuring: zeros.
  virtual MachineLimits measure_limits() { return {}; }
};

/// The back end `options.name` says, over weights that outlive it. Error(unsupported) when this build or machine lacks it.
std::unique_ptr<Backend> make_backend(const Weights& weights, const BackendOptions& options);

}  // namespace lily
