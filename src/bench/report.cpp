#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lily::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kColumns = "{:<9}{:>7}  {:<34}{:>10}{:>9}{:>8}{:>8}{:>8}  {}\n";

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f} %", 100 * *share) : "-";
}

// Three digits or one decimal, whichever is more.
std::string number(double x) {
  return fmt::format("{:.{}f}", x, x < 10 ? 2 : x < 1000 ? 1 : 0);
}

std::string rate(const Spread& s) {
  return fmt::format("{} ({} … {})", number(s.median), number(s.min), number(s.max));
}

Json gb_s(double bytes_per_s) {
  return bytes_per_s > 0 ? Json(bytes_per_s / 1e9) : Json(nullptr);
}

Json optional(const std::optional<double>& x) {
  return x ? Json(*x) : Json(nullptr);
}

Json row_json(const Row& r) {
  Json j = {{"phase", phase_name(r.phase)},
            {"n", r.n},
            {"tok_s_median", r.tok_s.median},
            {"tok_s_min", r.tok_s.min},
            {"tok_s_max", r.tok_s.max},
            {"reps", r.reps},
            {"bytes_per_token", r.work.bytes},
            {"int8_ops_per_token", r.work.int8_ops},
            {"bandwidth_share", optional(r.bandwidth_share)},
            {"compute_share", optional(r.compute_share)},
            {"limit_tok_s", r.limit_tok_s > 0 ? Json(r.limit_tok_s) : Json(nullptr)},
            {"logits_hash", r.logits_hash},
            {"same_hash_in_all_reps", r.same_hash}};
  if (!r.ablated.empty()) {
    j["ablated"] = r.ablated;
    j["speedup"] = optional(r.speedup);
  }
  if (r.peer) {
    j["peer_tok_s_median"] = r.peer->tok_s.median;
    j["peer_tok_s_min"] = r.peer->tok_s.min;
    j["peer_tok_s_max"] = r.peer->tok_s.max;
    j["peer_ratio"] = r.peer->ratio;
  }
  if (!r.stages.empty()) j["stage_shares"] = r.stages;
  return j;
}

}  // namespace

const char* phase_name(plan::Phase phase) {
  return phase == plan::Phase::prefill ? "prefill" : "decode";
}

std::string table_head(const Report& r) {
  std::string s = fmt::format("model    {}\nbackend  {}\nmachine  {}\n", r.model, r.backend, r.machine);
  if (!r.peer.empty()) s += fmt::format("peer     {}\n", r.peer);
  return s + "\n" +
         fmt::format(fmt::runtime(kColumns), "phase", "n", "tokens/s: median (min … max)", "MB/token", "GB/s", "read",
                     "int8", "ratio", "last logits");
}

std::string table_row(const Row& r) {
  const std::string moved = number(r.work.bytes * r.tok_s.median / 1e9);
  std::string last = r.logits_hash + (r.same_hash ? "" : " (not the same in every repetition)");
  if (!r.ablated.empty()) last += "  without " + r.ablated;
  std::string s = fmt::format(fmt::runtime(kColumns), phase_name(r.phase), r.n, rate(r.tok_s),
                              number(r.work.bytes / 1e6), moved, percent(r.bandwidth_share), percent(r.compute_share),
                              r.speedup ? fmt::format("{:.3f}", *r.speedup) : "", last);
  if (r.peer)
    s += fmt::format(fmt::runtime(kColumns), phase_name(r.phase), r.n, rate(r.peer->tok_s), "", "", "", "",
                     fmt::format("{:.3f}", r.peer->ratio), "peer");
  std::vector<std::pair<double, std::string>> stages;
  for (const auto& [name, share] : r.stages) stages.emplace_back(share, name);
  std::sort(stages.rbegin(), stages.rend());
  for (const auto& [share, name] : stages) s += fmt::format("{:>24.1f} %  {}\n", 100 * share, name);
  return s;
}

std::string table_skipped(const Skipped& s) {
  return fmt::format("{:<9}{:>7}  skipped: {}\n", phase_name(s.phase), s.n, s.why);
}

std::string table_foot(const Report& r) {
  std::string s = "\n";
  if (r.read_bytes_per_s > 0)
    s += fmt::format("limits   {:.1f} GB/s read, {:.0f} GOP/s int8 (medians of what was measured between the runs)\n",
                     r.read_bytes_per_s / 1e9, r.int8_ops_per_s / 1e9);
  s += fmt::format(
      "prefill  n tokens from an empty state, in the engine's passes; decode: {} steps after n tokens, state restored\n"
      "MB/token what must move: weights once a pass (of the experts those that are chosen; in prefill, as many as an "
      "even\n"
      "         choice touches), KV once for all query heads, recurrent state read and written once a pass\n"
      "read     MB/token · tokens/s over the read rate measured beside the run\n"
      "int8     operations of the integer products, every int8 term counted, over the int8 peak measured beside the "
      "run\n",
      r.steps);
  bool ablated = false;
  for (const Row& row : r.rows) ablated |= !row.ablated.empty();
  if (ablated || !r.peer.empty())
    s += fmt::format("ratio    Lily with everything on over this line, in the same repetition; the median\n");
  return s;
}

std::string report_json(const Report& r) {
  Json rows = Json::array(), skipped = Json::array();
  for (const Row& row : r.rows) rows.push_back(row_json(row));
  for (const Skipped& s : r.skipped) skipped.push_back({{"phase", phase_name(s.phase)}, {"n", s.n}, {"why", s.why}});
  Json all = {{"machine", r.machine},
              {"backend", r.backend},
              {"model", r.model},
              {"measured_read_gb_s", gb_s(r.read_bytes_per_s)},
              {"measured_int8_gop_s", gb_s(r.int8_ops_per_s)},
              {"decode_steps", r.steps}};
  if (!r.peer.empty()) all["peer"] = r.peer;
  all["rows"] = rows;
  all["skipped"] = skipped;
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lily::bench
