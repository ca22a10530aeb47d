#include "bench/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lily::bench {
namespace {

using plan::Phase;

constexpr double kPanelWidth = 460, kPanelHeight = 320, kLeft = 62, kRight = 16, kTop = 56, kBottom = 52;

// Colours that stay apart for colour-blind readers, a shade for each background.
constexpr const char* kStyle =
    "text{font-family:sans-serif;font-size:12px;fill:#24292f}.title{font-size:14px;font-weight:bold}"
    ".grid{stroke:#8885;stroke-width:1}.axis{stroke:#888;stroke-width:1}"
    ".lily{stroke:#0b62c4;fill:none}.peer{stroke:#b4540a;fill:none}.limit{stroke:#888;fill:none;stroke-dasharray:5 4}"
    "polyline,.key{stroke-width:2}.dot{stroke:none}.dot.lily{fill:#0b62c4}.dot.peer{fill:#b4540a}.dot.limit{fill:#888}"
    "@media(prefers-color-scheme:dark){text{fill:#d7dde3}.lily{stroke:#5aa9ff}.peer{stroke:#f0984a}"
    ".dot.lily{fill:#5aa9ff}.dot.peer{fill:#f0984a}}";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;  // XML has no control characters
    }
  }
  return out;
}

struct Point {
  int n;
  double value, min, max;
};
struct Series {
  const char* cls;
  std::string label;
  std::vector<Point> points;
};

std::string length_text(int n) {
  return n >= 1024 && n % 1024 == 0 ? fmt::format("{}K", n / 1024) : std::to_string(n);
}

/// 1, 2 or 5 times a power of ten, so that about five of them make `most`.
double tick_step(double most) {
  const double raw = most / 5, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double m : {1.0, 2.0, 5.0})
    if (raw <= m * power) return m * power;
  return 10 * power;
}

std::vector<Series> series_of(const Report& r, Phase phase) {
  Series lily{"lily", "Lily", {}}, peer{"peer", "peer", {}}, limit{"limit", "limit: reads or int8", {}};
  for (const Row& row : r.rows) {
    if (row.phase != phase || !row.ablated.empty()) continue;
    lily.points.push_back({row.n, row.tok_s.median, row.tok_s.min, row.tok_s.max});
    if (row.peer) peer.points.push_back({row.n, row.peer->tok_s.median, row.peer->tok_s.min, row.peer->tok_s.max});
    if (row.limit_tok_s > 0) limit.points.push_back({row.n, row.limit_tok_s, row.limit_tok_s, row.limit_tok_s});
  }
  std::vector<Series> all;
  for (Series* s : {&limit, &peer, &lily})
    if (!s->points.empty()) all.push_back(*s);
  return all;
}

class Panel {
 public:
  Panel(double x, Phase phase, std::vector<Series> series)
      : x0_(x + kLeft), x1_(x + kPanelWidth - kRight), series_(std::move(series)) {
    for (const Series& s : series_)
      for (const Point& p : s.points) {
        lengths_.push_back(p.n);
        most_ = std::max(most_, p.max);
      }
    std::sort(lengths_.begin(), lengths_.end());
    lengths_.erase(std::unique(lengths_.begin(), lengths_.end()), lengths_.end());
    text(x0_, 20, "title",
         phase == Phase::prefill ? "Prefill: tokens/s over prompt length" : "Decode: tokens/s over context length");
  }
  std::string svg() {
    if (lengths_.empty()) {
      text(x0_, kPanelHeight / 2, "", "not measured");
      return out_;
    }
    axes();
    for (const Series& s : series_) draw(s);
    legend();
    return out_;
  }

 private:
  double x(int n) const {
    const double low = std::log2(lengths_.front()), high = std::log2(lengths_.back());
    return high > low ? x0_ + (x1_ - x0_) * (std::log2(n) - low) / (high - low) : (x0_ + x1_) / 2;
  }
  double y(double value) const {
    const double bottom = kPanelHeight - kBottom;
    return bottom - (bottom - kTop) * value / (1.08 * most_);
  }
  void text(double at_x, double at_y, const char* cls, const std::string& what, const char* anchor = "start") {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", at_x, at_y, cls,
                        anchor, escaped(what));
  }
  void line(double ax, double ay, double bx, double by, const std::string& cls) {
    out_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", ax, ay, bx,
                        by, cls);
  }
  void axes() {
    const double step = tick_step(most_);
    for (int i = 0; i * step <= 1.05 * most_; ++i) {
      line(x0_, y(i * step), x1_, y(i * step), i == 0 ? "axis" : "grid");
      text(x0_ - 6, y(i * step) + 4, "", fmt::format("{:g}", i * step), "end");
    }
    double last = -1e9;
    for (const int n : lengths_) {
      if (x(n) - last < 30) continue;  // no room for its label
      last = x(n);
      line(last, y(0), last, y(0) + 4, "axis");
      text(last, y(0) + 18, "", length_text(n), "middle");
    }
    text((x0_ + x1_) / 2, y(0) + 38, "", "tokens", "middle");
  }
  void draw(const Series& s) {
    std::string path;
    for (const Point& p : s.points) path += fmt::format("{:.1f},{:.1f} ", x(p.n), y(p.value));
    out_ += fmt::format("<polyline points=\"{}\" class=\"{}\"/>\n", path.substr(0, path.size() - 1), s.cls);
    for (const Point& p : s.points) {
      if (p.max > p.min) line(x(p.n), y(p.min), x(p.n), y(p.max), s.cls);
      out_ += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" class=\"dot {}\"><title>{}: {:.1f} ({:.1f} … "
          "{:.1f})</title></circle>\n",
          x(p.n), y(p.value), s.cls, length_text(p.n), p.value, p.min, p.max);
    }
  }
  void legend() {
    double at = x0_;
    for (const Series& s : series_) {
      line(at, 36, at + 22, 36, std::string("key ") + s.cls);
      text(at + 28, 40, "", s.label);
      at += 46 + 7 * double(s.label.size());
    }
  }

  double x0_, x1_, most_ = 0;
  std::vector<Series> series_;
  std::vector<int> lengths_;
  std::string out_;
};

}  // namespace

std::string plot_svg(const Report& r) {
  const double width = 2 * kPanelWidth, height = kPanelHeight + 24;
  std::string s = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\">\n"
      "<title>Lily: prefill and decode, tokens a second</title>\n<style>{2}</style>\n",
      width, height, kStyle);
  s += Panel(0, Phase::prefill, series_of(r, Phase::prefill)).svg();
  s += Panel(kPanelWidth, Phase::decode, series_of(r, Phase::decode)).svg();
  std::string caption = fmt::format("{}, {}, {}", r.model, r.backend, r.machine);
  if (!r.peer.empty()) caption += ", peer: " + r.peer;
  constexpr std::size_t kCaption = 140;
  if (caption.size() > kCaption) caption = caption.substr(0, kCaption) + "...";
  for (char& c : caption)
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';  // a path may hold any bytes, a document only whole characters
  s += fmt::format("<text x=\"12\" y=\"{}\">{}</text>\n</svg>\n", height - 8, escaped(caption));
  return s;
}

}  // namespace lily::bench
