#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/progress.h"
#include "bench/bench.h"
#include "bench/cost.h"
#include "bench/peer.h"
#include "bench/runner.h"

namespace lily::bench {
namespace {

using plan::Phase;

constexpr int kWarmUpSteps = 2;

struct Line {
  Phase phase;
  int n;
};

/// One way of running a row, and what its repetitions gave.
struct Contender {
  std::optional<ops::Technique> without;
  bool peer = false;
  std::vector<double> tok_s;
  std::vector<MachineLimits> limits;  // beside each repetition
  std::vector<std::string> hashes;
  std::string failure;  // of a peer

  bool plain() const { return !without && !peer; }
  std::string label() const { return peer ? ", peer" : without ? std::string(", without ") + without->name : ""; }
};

std::vector<Line> sorted_lines(const Options& o) {
  std::vector<Line> lines;
  for (int n : o.prefill) lines.push_back({Phase::prefill, n});
  for (int n : o.decode) lines.push_back({Phase::decode, n});
  const auto key = [](const Line& l) { return std::pair(l.n, l.phase == Phase::decode); };
  std::sort(lines.begin(), lines.end(), [&](const Line& a, const Line& b) { return key(a) < key(b); });
  lines.erase(std::unique(lines.begin(), lines.end(), [&](const Line& a, const Line& b) { return key(a) == key(b); }),
              lines.end());
  return lines;
}

MachineLimits mean(const MachineLimits& a, const MachineLimits& b) {
  return {.read_bytes_per_s = (a.read_bytes_per_s + b.read_bytes_per_s) / 2,
          .int8_ops_per_s = (a.int8_ops_per_s + b.int8_ops_per_s) / 2};
}

class Bench {
 public:
  Bench(Backend& backend, const Weights& weights, const Options& options, Report& report, const Listener& listener)
      : backend_(backend),
        weights_(weights),
        o_(options),
        report_(report),
        listener_(listener),
        techniques_(chosen_techniques(backend, options.ablate)),
        lines_(fitting(sorted_lines(options))),
        runner_(backend, weights.shape().vocab, longest()) {}

  void run() {
    if (lines_.empty()) return;
    backend_.load_weights();
    calibrate();
    for (const Line& line : lines_) measure_line(line);
    std::vector<double> read, int8;
    for (const MachineLimits& l : limits_) read.push_back(l.read_bytes_per_s), int8.push_back(l.int8_ops_per_s);
    report_.read_bytes_per_s = median(read);
    report_.int8_ops_per_s = median(int8);
  }

 private:
  // ---- what is measured
  std::vector<Line> fitting(std::vector<Line> lines) {
    std::erase_if(lines, [this](const Line& l) {
      const std::string why = why_not(l);
      if (!why.empty()) skip(l, why);
      return !why.empty();
    });
    return lines;
  }
  std::string why_not(const Line& l) const {
    const int window = weights_.shape().max_context, tokens = l.n + (l.phase == Phase::decode ? o_.steps : 0);
    if (tokens > window)
      return fmt::format("{} tokens{}, and the model's window is {}", l.n,
                         l.phase == Phase::decode ? fmt::format(" and {} steps", o_.steps) : "", window);
    if (o_.memory <= 0) return {};
    // Decode: the state that is kept and the copy that goes on from it share their KV. Prefill: the state of the run
    // without a technique, while the one for the decode row is kept.
    const StateLayout& layout = backend_.state_layout();
    std::int64_t needed = weights_.bytes() + backend_.scratch_bytes();
    needed += l.phase == Phase::decode ? state_bytes(layout, tokens) + state_bytes(layout, 1)
                                       : state_bytes(layout, tokens) * (techniques_.empty() ? 1 : 2);
    if (needed <= o_.memory) return {};
    return fmt::format("{} of memory are needed, weights and scratch included, and {} are there",
                       human_bytes(double(needed)), human_bytes(double(o_.memory)));
  }
  int longest() const {
    int n = 1;
    for (const Line& l : lines_) n = std::max(n, l.n + o_.steps);
    return n;
  }
  void skip(const Line& l, const std::string& why) {
    report_.skipped.push_back({.phase = l.phase, .n = l.n, .why = why});
    if (listener_.skipped) listener_.skipped(report_.skipped.back());
  }
  std::vector<Contender> contenders(Phase phase) const {
    std::vector<Contender> list(1);
    for (const ops::Technique& t : techniques_)
      if (acts(t, phase)) list.push_back({.without = t});
    if (!o_.peer.empty()) list.push_back({.peer = true});
    return list;
  }
  Work work(const Line& l) const {
    return l.phase == Phase::prefill ? prefill_work(backend_, weights_, l.n)
                                     : decode_work(backend_, weights_, l.n, o_.steps);
  }

  // ---- how long it takes
  // Runs a little of each phase: warms up, and tells how far from the limits a token is.
  void calibrate() {
    const auto start = Clock::now();
    const MachineLimits limits = measure_limits();
    limits_take_ = seconds_since(start);
    for (Phase phase : {Phase::prefill, Phase::decode}) {
      const auto first = std::find_if(lines_.begin(), lines_.end(), [&](const Line& l) { return l.phase == phase; });
      if (phase == Phase::decode && first == lines_.end()) continue;
      const int n = phase == Phase::decode
                        ? 1
                        : std::min({first == lines_.end() ? 256 : first->n, backend_.max_rows(), longest()});
      const auto once = [&] {
        SequenceState state = runner_.fresh();
        if (phase == Phase::prefill) return runner_.prefill(state, n);
        runner_.prefill(state, 1);
        return runner_.decode(state, 1);
      };
      once();
      const double seconds = once() / n;
      const double least = estimate_seconds(
          phase == Phase::prefill ? prefill_work(backend_, weights_, n) : decode_work(backend_, weights_, 1, 1),
          limits);
      (phase == Phase::prefill ? slower_prefill_ : slower_decode_) = least > 0 ? seconds / least : seconds;
    }
    calibrated_ = limits;
    double total = 0;
    for (const Line& l : lines_)
      total += seconds_before(l) + double(contenders(l.phase).size()) *
                                       (warm_up_seconds(l) + double(o_.reps) * (seconds_of_run(l) + limits_take_)) +
               (o_.stages ? seconds_of_run(l) : 0);
    if (listener_.estimate) listener_.estimate(total, int(lines_.size()));
  }
  // Float32 multiply-adds run at about a quarter of the int8 rate.
  static double estimate_seconds(const Work& w, const MachineLimits& limits) {
    return limit_seconds({.bytes = w.bytes, .int8_ops = w.int8_ops + 4 * w.float_ops}, limits);
  }
  double token_seconds(const Line& l) const {
    const double slower = l.phase == Phase::prefill ? slower_prefill_ : slower_decode_;
    const double least = estimate_seconds(work(l), calibrated_);
    return least > 0 ? least * slower : slower;
  }
  double seconds_of_run(const Line& l) const { return token_seconds(l) * (l.phase == Phase::prefill ? l.n : o_.steps); }
  double warm_up_seconds(const Line& l) const {
    return token_seconds(l) *
           (l.phase == Phase::prefill ? std::min(l.n, backend_.max_rows()) : std::min(kWarmUpSteps, o_.steps));
  }
  // The tokens that a decode row's state lacks when its turn comes.
  double seconds_before(const Line& l) const {
    if (l.phase == Phase::prefill) return 0;
    int have = 0;
    for (const Line& other : lines_)
      if (other.n < l.n || (other.n == l.n && other.phase == Phase::prefill)) have = std::max(have, other.n);
    return token_seconds({Phase::prefill, l.n}) * (l.n - have);
  }
  void tell(const std::string& what, double part) {
    if (listener_.progress) listener_.progress(what, done_ + part);
  }

  // ---- runs
  MachineLimits measure_limits() {
    limits_.push_back(backend_.measure_limits());
    return limits_.back();
  }
  bool kept_is_wanted(int n) const {
    return std::any_of(lines_.begin(), lines_.end(),
                       [&](const Line& l) { return l.phase == Phase::decode && l.n >= n; });
  }
  // Tokens a second of one run of Lily.
  double run_prefill(const Line& l, bool keep, const std::string& what) {
    if (keep) kept_.reset();
    SequenceState state = runner_.fresh();
    const double whole = seconds_of_run(l);
    const double seconds = runner_.prefill(state, l.n, [&](int read) { tell(what, whole * read / l.n); });
    if (keep && kept_is_wanted(l.n)) kept_ = std::move(state);
    return l.n / seconds;
  }
  double run_decode() {
    SequenceState state = *kept_;
    return o_.steps / runner_.decode(state, o_.steps);
  }
  void switch_off(const Contender& c) {
    backend_.switch_off(c.without ? std::vector<std::string>{c.without->name} : std::vector<std::string>{});
  }
  void warm_up(const Line& l, const std::vector<Contender>& all) {
    for (const Contender& c : all) {
      if (c.peer) continue;
      switch_off(c);
      SequenceState state = l.phase == Phase::decode ? *kept_ : runner_.fresh();
      if (l.phase == Phase::decode)
        runner_.decode(state, std::min(kWarmUpSteps, o_.steps));
      else
        runner_.prefill(state, std::min(l.n, backend_.max_rows()));
    }
    backend_.switch_off({});
    done_ += double(all.size()) * warm_up_seconds(l);
  }
  // Reads on from the longest state there is, which is never longer: rows ascend.
  void reach(const Line& l, const std::string& what) {
    if (!kept_) kept_ = runner_.fresh();
    const double whole = seconds_before(l);
    const int from = int(kept_->length);
    runner_.prefill(*kept_, l.n, [&](int read) {
      tell(what + ", reading up to it", whole * (read - from) / std::max(1, l.n - from));
    });
    done_ += whole;
  }
  void run_once(Contender& c, const Line& l, const std::string& what) {
    tell(what + c.label(), 0);
    if (c.peer) return run_peer_once(c, l);
    switch_off(c);
    c.tok_s.push_back(l.phase == Phase::prefill ? run_prefill(l, c.plain(), what + c.label()) : run_decode());
    c.hashes.push_back(runner_.hash());
    backend_.switch_off({});
  }
  void run_peer_once(Contender& c, const Line& l) {
    if (!c.failure.empty()) return;
    try {
      c.tok_s.push_back(run_peer(peer_command(o_.peer, l.phase, l.n, o_.steps)));
      peer_has_run_ = true;
    } catch (const Error& e) {
      if (!peer_has_run_) throw;
      c.failure = e.what();
      skip(l, c.failure);
    }
    backend_.load_weights();  // the other engine may have pushed them out of memory
  }

  void measure_line(const Line& l) {
    std::vector<Contender> all = contenders(l.phase);
    const std::string name = fmt::format("{} {}", phase_name(l.phase), l.n);
    if (l.phase == Phase::decode) reach(l, name);
    tell(name + ", warming up", 0);
    warm_up(l, all);
    MachineLimits before = measure_limits();
    for (int rep = 0; rep < o_.reps; ++rep) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        Contender& c = all[(i + std::size_t(rep)) % all.size()];
        run_once(c, l, fmt::format("{}, run {} of {}", name, rep + 1, o_.reps));
        const MachineLimits after = measure_limits();
        c.limits.push_back(mean(before, after));
        before = after;
        done_ += seconds_of_run(l) + limits_take_;
      }
    }
    report_line(l, all, o_.stages ? stage_shares(l, name + ", stage by stage") : StageTimes());
  }
  StageTimes stage_shares(const Line& l, const std::string& what) {
    StageTimes times;
    backend_.time_stages(&times);
    l.phase == Phase::prefill ? run_prefill(l, false, what) : run_decode();
    backend_.time_stages(nullptr);
    double sum = 0;
    for (const auto& [name, seconds] : times) sum += seconds;
    for (auto& [name, seconds] : times) seconds /= sum;
    done_ += seconds_of_run(l);
    return times;
  }

  // ---- rows
  static double median_ratio(const Contender& a, const Contender& b) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < std::min(a.tok_s.size(), b.tok_s.size()); ++i)
      ratios.push_back(a.tok_s[i] / b.tok_s[i]);
    return median(ratios);
  }
  void report_line(const Line& l, const std::vector<Contender>& all, const StageTimes& stages) {
    for (const Contender& c : all) {
      if (c.peer) continue;
      Row row{.phase = l.phase,
              .n = l.n,
              .ablated = c.without ? c.without->name : "",
              .reps = o_.reps,
              .tok_s = spread(c.tok_s),
              .work = work(l)};
      std::vector<double> read, compute, limit;
      for (std::size_t i = 0; i < c.tok_s.size(); ++i) {
        if (c.limits[i].read_bytes_per_s > 0)
          read.push_back(c.tok_s[i] * row.work.bytes / c.limits[i].read_bytes_per_s);
        if (c.limits[i].int8_ops_per_s > 0)
          compute.push_back(c.tok_s[i] * row.work.int8_ops / c.limits[i].int8_ops_per_s);
        const double least = limit_seconds(row.work, c.limits[i]);
        if (least > 0) limit.push_back(1 / least);
      }
      if (!read.empty()) row.bandwidth_share = median(read);
      if (!compute.empty()) row.compute_share = median(compute);
      row.limit_tok_s = median(limit);
      row.logits_hash = c.hashes.back();
      row.same_hash =
          std::all_of(c.hashes.begin(), c.hashes.end(), [&](const std::string& h) { return h == c.hashes[0]; });
      if (c.plain()) row.stages = stages;
      if (c.without) row.speedup = median_ratio(all[0], c);
      if (c.plain() && all.back().peer && !all.back().tok_s.empty())
        row.peer = PeerFigures{.tok_s = spread(all.back().tok_s), .ratio = median_ratio(all[0], all.back())};
      report_.rows.push_back(row);
      if (listener_.row) listener_.row(row);
    }
  }

  Backend& backend_;
  const Weights& weights_;
  const Options& o_;
  Report& report_;
  const Listener& listener_;
  std::vector<ops::Technique> techniques_;
  std::vector<Line> lines_;
  Runner runner_;
  std::optional<SequenceState> kept_;  // of the longest beginning that was read so far
  std::vector<MachineLimits> limits_;
  MachineLimits calibrated_;
  double slower_prefill_ = 1, slower_decode_ = 1;  // than the limits, or without any: seconds a token
  double limits_take_ = 0;                         // seconds of one measurement
  double done_ = 0;                                // estimated seconds of what is behind
  bool peer_has_run_ = false;
};

}  // namespace

std::vector<int> default_lengths() {
  std::vector<int> lengths;
  for (int n = 256; n <= 128 * 1024; n *= 2) lengths.push_back(n);
  return lengths;
}

bool acts(const ops::Technique& t, plan::Phase phase) {
  return phase == plan::Phase::prefill ? t.prefill : t.decode;
}

std::vector<ops::Technique> chosen_techniques(const Backend& backend, const std::vector<std::string>& names) {
  const std::vector<ops::Technique> all = backend.techniques();
  std::vector<ops::Technique> chosen;
  for (const ops::Technique& t : all)
    if (std::any_of(names.begin(), names.end(), [&](const std::string& n) { return n == "all" || n == t.name; }))
      chosen.push_back(t);
  for (const std::string& name : names) {
    if (name == "all" || std::any_of(all.begin(), all.end(), [&](const ops::Technique& t) { return name == t.name; }))
      continue;
    std::string known = "all";
    for (const ops::Technique& t : all) known += std::string(", ") + t.name;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--ablate {}: {} has no such technique (there are: {})", name, backend.name(), known));
  }
  return chosen;
}

void measure(Backend& backend, const Weights& weights, const Options& options, Report& report,
             const Listener& listener) {
  report.steps = options.steps;
  report.peer = options.peer;
  if (!options.peer.empty())
    peer_command(options.peer, Phase::prefill, 1, 1);  // refuses it before anything is measured
  Bench(backend, weights, options, report, listener).run();
}

}  // namespace lily::bench
