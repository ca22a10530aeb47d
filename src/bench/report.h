// What a bench found, and its three forms: table, JSON, plot (bench/plot.h). Nothing here measures.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/statistics.h"
#include "plan/op.h"

namespace lily::bench {

/// What one token of a row has to move and to compute at least (plan/cost.h), on average over the row's tokens.
struct Work {
  double bytes =
      0;  // weights once a pass, of the experts those that are chosen; KV once; recurrent state read and written
  double int8_ops =
      0;  // multiplications and additions of the integer matrix products, each int8 term of an input counted
  double float_ops = 0;  // of attention, the recurrence and products over float32
};

/// Another engine beside a row.
struct PeerFigures {
  Spread tok_s;
  double ratio = 0;  // Lily's rate over the peer's: median of those of each repetition
};

struct Row {
  plan::Phase phase = plan::Phase::prefill;
  int n = 0;            // prefill: tokens read; decode: tokens in the context before the first step
  std::string ablated;  // the technique that this row does without; empty: none
  int reps = 0;
  Spread tok_s;
  Work work;
  // Shares of what the machine could do beside each repetition; medians. Absent where the back end has no measured
  // limits.
  std::optional<double> bandwidth_share, compute_share;
  double limit_tok_s = 0;           // what the limits measured beside this row would allow; 0: none measured
  std::string logits_hash;          // of the last logits
  bool same_hash = true;            // in every repetition
  std::optional<double> speedup;    // ablated rows: the plain rate over this one, median of those of each repetition
  std::optional<PeerFigures> peer;  // plain rows
  std::map<std::string, double> stages;  // shares of the time, by the ops of a stage; empty: not asked for
};

/// A length that was not measured.
struct Skipped {
  plan::Phase phase = plan::Phase::prefill;
  int n = 0;
  std::string why;
};

struct Report {
  std::string machine, backend, model;
  std::string peer;                                 // its command; empty: none
  int steps = 0;                                    // decode steps of a repetition
  double read_bytes_per_s = 0, int8_ops_per_s = 0;  // medians of all that was measured; 0: the back end has no limits
  std::vector<Row> rows;
  std::vector<Skipped> skipped;
};

const char* phase_name(plan::Phase phase);

// The table, in pieces, so that each row can be printed when it is known.
std::string table_head(const Report& report);  // what is measured, and the columns
std::string table_row(const Row& row);         // and a second line for its peer
std::string table_skipped(const Skipped& skipped);
std::string table_foot(const Report& report);  // the machine's limits; what the columns count

/// {machine, backend, model, measured_read_gb_s, …, rows: […], skipped: […]}, as docs/OPTIONS.md has it.
std::string report_json(const Report& report);

}  // namespace lily::bench
