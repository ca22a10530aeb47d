#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"

namespace lily {
namespace {

/// Tokens lighter than this against the likeliest cannot be told from impossible: 248320 of them together weigh less than
/// 2^-53, the step of a draw.
constexpr double kLightestLog = -50;

void check(const char* field, double value, double lo, double hi) {
  if (!(value >= lo && value <= hi)) {  // NaN fails too
    throw Error(ErrorCode::invalid_argument, fmt::format("{} is {}, and must be from {} to {}", field, value, lo, hi));
  }
}

std::uint64_t random_seed() {
  std::random_device device;
  return (std::uint64_t(device()) << 32 | device()) >> 1;  // 63 bits, so that JSON readers keep it exact as an integer
}

/// The splitmix64 finaliser: a bijection whose outputs on consecutive inputs pass for independent.
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

double uniform_draw(std::uint64_t seed, std::uint64_t index) {
  constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15u;
  // The seed is mixed first, so that neighbouring seeds do not give shifted copies of one stream.
  return double(mix(mix(seed + kStep) + (index + 1) * kStep) >> 11) * 0x1p-53;
}

Sampler::Sampler(SamplerOptions options) : options_(std::move(options)), seed_(options_.seed.value_or(0)) {
  check("temperature", options_.temperature, 0, 100);
  check("top_k", options_.top_k, 0, 1e9);
  check("top_p", options_.top_p, 0, 1);
  check("min_p", options_.min_p, 0, 1);
  check("presence_penalty", options_.presence_penalty, -2, 2);
  check("frequency_penalty", options_.frequency_penalty, -2, 2);
  check("repetition_penalty", options_.repetition_penalty, 0.01, 100);
  for (const auto& [id, bias] : options_.logit_bias) check(fmt::format("logit_bias of token {}", id).c_str(), bias, -100, 100);
  if (!options_.seed) seed_ = random_seed();
}

void Sampler::see_prompt(std::span<const std::int32_t> ids) {
  if (options_.repetition_penalty != 1) prompt_.insert(ids.begin(), ids.end());
}

void Sampler::accept(std::int32_t id) { ++generated_[id]; }

bool Sampler::changes_logits() const {
  if (!options_.logit_bias.empty()) return true;
  if (options_.repetition_penalty != 1 && !(prompt_.empty() && generated_.empty())) return true;
  return (options_.presence_penalty != 0 || options_.frequency_penalty != 0) && !generated_.empty();
}

std::span<const float> Sampler::adjusted(std::span<const float> logits) {
  if (!changes_logits()) return logits;
  scratch_.assign(logits.begin(), logits.end());
  const auto inside = [&](std::int32_t id) { return id >= 0 && std::size_t(id) < scratch_.size(); };
  for (const auto& [id, bias] : options_.logit_bias) {
    if (!inside(id)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("logit_bias names token {}, and the vocabulary ends at {}", id, scratch_.size() - 1));
    }
    scratch_[id] += bias;
  }
  if (const auto r = float(options_.repetition_penalty); r != 1) {
    const auto penalize = [&](std::int32_t id) {
      if (inside(id)) scratch_[id] = scratch_[id] > 0 ? scratch_[id] / r : scratch_[id] * r;
    };
    for (const std::int32_t id : prompt_) penalize(id);
    for (const auto& [id, times] : generated_) {
      if (!prompt_.contains(id)) penalize(id);
    }
  }
  if (options_.frequency_penalty != 0 || options_.presence_penalty != 0) {
    for (const auto& [id, times] : generated_) {
      if (inside(id)) scratch_[id] -= float(options_.frequency_penalty * times + options_.presence_penalty);
    }
  }
  return scratch_;
}

void Sampler::select_top_k(std::span<const float> logits, std::size_t k) {
  // One pass that keeps what may still be among the k best; whenever twice as many have gathered, the worse half goes.
  const auto better = [](const Candidate& a, const Candidate& b) { return a.better(b); };
  const std::size_t room = std::max<std::size_t>(2 * k, 256);
  candidates_.clear();
  float lowest = -INFINITY;  // of the k best so far; later ids of equal logit lose the tie, so only larger ones enter
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > lowest)) continue;
    candidates_.push_back({logits[i], std::int32_t(i), 0});
    if (candidates_.size() < room) continue;
    std::nth_element(candidates_.begin(), candidates_.begin() + (k - 1), candidates_.end(), better);
    candidates_.resize(k);
    lowest = candidates_[k - 1].logit;
  }
  if (candidates_.size() > k) {
    std::nth_element(candidates_.begin(), candidates_.begin() + (k - 1), candidates_.end(), better);
    candidates_.resize(k);
  }
  std::sort(candidates_.begin(), candidates_.end(), better);  // one order for the draw, whatever nth_element left
}

void Sampler::select_above(std::span<const float> logits, float lowest) {
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= lowest) candidates_.push_back({logits[i], std::int32_t(i), 0});
  }
}

void Sampler::cut_top_p() {
  // Bisection by weight instead of a sort: [0, lo) is kept, [hi, end) is not, everything in the first is better than in the
  // second. Linear in the number of candidates.
  const auto better = [](const Candidate& a, const Candidate& b) { return a.better(b); };
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  double left = options_.top_p * total;  // still to be reached by candidates of [lo, hi)
  std::size_t lo = 0, hi = candidates_.size();
  while (hi - lo > 1) {
    const std::size_t middle = lo + (hi - lo) / 2;
    std::nth_element(candidates_.begin() + lo, candidates_.begin() + middle, candidates_.begin() + hi, better);
    double sum = 0;
    for (std::size_t i = lo; i < middle; ++i) sum += candidates_[i].weight;
    if (sum >= left) {
      hi = middle;
    } else {
      left -= sum;
      lo = middle;
    }
  }
  candidates_.resize(hi);
  // nth_element leaves an order of its library's choosing; the draw needs one that is the same everywhere.
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
}

std::int32_t Sampler::draw() {
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  double left = uniform_draw(seed_, draws_++) * total;
  for (const Candidate& c : candidates_) {
    left -= c.weight;
    if (left < 0) return c.id;
  }
  // Rounding can leave a remainder; the last token with any weight takes it.
  for (auto c = candidates_.rbegin(); c != candidates_.rend(); ++c) {
    if (c->weight > 0) return c->id;
  }
  return candidates_.front().id;
}

std::int32_t Sampler::sample(std::span<const float> raw) {
  const std::span<const float> logits = adjusted(raw);
  std::size_t best = 0;
  for (std::size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  if (logits.empty() || !std::isfinite(logits[best])) {
    throw Error(ErrorCode::numerical, "the largest logit is not a finite number");
  }
  if (options_.temperature == 0) return std::int32_t(best);

  const double largest = logits[best], t = options_.temperature;
  if (options_.top_k > 0 && std::size_t(options_.top_k) < logits.size()) {
    select_top_k(logits, std::size_t(options_.top_k));
  } else {
    // min_p may cut here already only when no top_p comes before it. The step below the bound keeps rounding out of it.
    const bool early = options_.top_p >= 1 && options_.min_p > 0;
    const double lowest_log = early ? std::max(kLightestLog, std::log(options_.min_p) - 1e-3) : kLightestLog;
    const double lowest = largest + t * lowest_log;
    select_above(logits, std::nextafter(float(lowest), -INFINITY));
  }
  for (Candidate& c : candidates_) c.weight = std::exp((double(c.logit) - largest) / t);
  if (options_.top_p < 1) cut_top_p();
  if (options_.min_p > 0) {
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < options_.min_p; });
  }
  return draw();
}

}  // namespace lily
