// Goldens: results of another implementation, read from safetensors files under tests/data/golden.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace lily::test {

inline std::string golden_path(const std::string& name) { return std::string(LILY_TEST_DATA) + "/golden/" + name; }

/// A tensor of a golden file as a vector.
template <class T>
std::vector<T> golden_tensor(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo& t = file.at(name);
  std::vector<T> out(t.bytes / sizeof(T));
  std::memcpy(out.data(), file.data(t), t.bytes);
  return out;
}

inline int argmax(std::span<const float> row) { return int(std::max_element(row.begin(), row.end()) - row.begin()); }

inline double log_sum_exp(std::span<const float> row) {
  const double largest = row[std::size_t(argmax(row))];
  double sum = 0;
  for (float v : row) sum += std::exp(double(v) - largest);
  return largest + std::log(sum);
}

/// How one set of logits [n, vocab] departs from the true one.
struct Agreement {
  double mean_kl = 0;  // KL(truth ‖ other), nats
  double max_kl = 0;
  double top1 = 0;     // share of rows with the same largest logit
};
inline Agreement compare_logits(std::span<const float> truth, std::span<const float> other, int vocab) {
  const std::size_t n = truth.size() / std::size_t(vocab);
  Agreement a;
  std::size_t same = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto p = truth.subspan(i * std::size_t(vocab), std::size_t(vocab)), q = other.subspan(i * std::size_t(vocab), std::size_t(vocab));
    const double lp = log_sum_exp(p), lq = log_sum_exp(q);
    double kl = 0;
    for (int v = 0; v < vocab; ++v) kl += std::exp(p[std::size_t(v)] - lp) * ((p[std::size_t(v)] - lp) - (q[std::size_t(v)] - lq));
    a.mean_kl += kl / double(n);
    a.max_kl = std::max(a.max_kl, kl);
    same += argmax(p) == argmax(q);
  }
  a.top1 = double(same) / double(n);
  return a;
}

/// Mean negative log-likelihood of ids[1…] under logits [n, vocab].
inline double mean_nll(std::span<const float> logits, std::span<const std::int32_t> ids, int vocab) {
  double sum = 0;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    const auto row = logits.subspan(i * std::size_t(vocab), std::size_t(vocab));
    sum += log_sum_exp(row) - row[std::size_t(ids[i + 1])];
  }
  return sum / double(ids.size() - 1);
}

/// |a − b| / |b| in the Euclidean norm.
inline double relative_error(std::span<const float> a, std::span<const float> b) {
  double num = 0, den = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    num += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
    den += double(b[i]) * b[i];
  }
  return std::sqrt(num / den);
}

}  // namespace lily::test
