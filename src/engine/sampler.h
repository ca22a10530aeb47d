// From logits to the next token.
//
// The steps, in the order in which they work on the logits l (the field's usual order), each neutral by default:
//   1. logit_bias          l[t] += bias[t]
//   2. repetition_penalty  r: l[t] = l[t] > 0 ? l[t] / r : l[t] * r   for every t of the prompt or generated
//   3. frequency_penalty   l[t] -= f * (times t was generated);  presence_penalty  l[t] -= p if t was generated
//                          (generated tokens alone, thinking included; the prompt does not count)
//   4. temperature T       p = softmax(l / T); T = 0: the largest l, of equal ones the lowest id, and nothing below applies
//   5. top_k               the k largest (of equal ones the lower ids); 0: all
//   6. top_p               of those, renormalised: the fewest largest whose sum reaches top_p; at least one
//   7. min_p               of those, the ones with p >= min_p * (largest p)
//   8. a draw from what is left, renormalised
// The draw is number n of a counter-based generator keyed by the seed, so the same seed and logits give the same text on
// every machine, however work is scheduled.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace lily {

struct SamplerOptions {
  double temperature = 1;
  int top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double presence_penalty = 0, frequency_penalty = 0;
  double repetition_penalty = 1;
  std::vector<std::pair<std::int32_t, float>> logit_bias;
  std::optional<std::uint64_t> seed;  // absent: another one for each sampler
};

/// Number `index` of the stream of `seed`, uniform in [0, 1), a multiple of 2^-53.
double uniform_draw(std::uint64_t seed, std::uint64_t index);

/// The state of one answer: what it generated so far and how many draws it made. Not thread-safe.
class Sampler {
 public:
  /// Error(invalid_argument) that names the field when a value is outside its range.
  explicit Sampler(SamplerOptions options);
  const SamplerOptions& options() const { return options_; }
  std::uint64_t seed() const { return seed_; }
  /// The prompt's tokens, for repetition_penalty.
  void see_prompt(std::span<const std::int32_t> ids);
  /// Chooses from `logits` [vocab]. Error(numerical) when the largest is not finite.
  std::int32_t sample(std::span<const float> logits);
  /// Counts `id` as generated.
  void accept(std::int32_t id);

 private:
  struct Candidate {
    float logit;
    std::int32_t id;
    double weight;  // exp((logit - largest) / temperature)
    bool better(const Candidate& o) const { return logit > o.logit || (logit == o.logit && id < o.id); }
  };
  bool changes_logits() const;
  std::span<const float> adjusted(std::span<const float> logits);
  void select_top_k(std::span<const float> logits, std::size_t k);
  void select_above(std::span<const float> logits, float lowest);
  void cut_top_p();
  std::int32_t draw();

  SamplerOptions options_;
  std::uint64_t seed_;
  std::uint64_t draws_ = 0;
  std::unordered_map<std::int32_t, int> generated_;  // token -> times
  std::unordered_set<std::int32_t> prompt_;
  std::vector<float> scratch_;                       // [vocab] logits after steps 1 to 3
  std::vector<Candidate> candidates_;
};

}  // namespace lily
