#include "sim/report/layout_svg.h"

#include <algorithm>
#include <map>

#include "sim/report/text.h"

namespace shardsim {

namespace {

// All lengths in px.
constexpr double kWidth = 1180, kMargin = 36, kLabels = 58, kGap = 30;
constexpr double kCell = 46;      // the widest that one element gets
constexpr double kSeparate = 20;  // from here on elements are drawn one by one
constexpr double kRow = 26, kRowGap = 7;
constexpr double kCharacter = 6.1;  // of the small type, on average
constexpr size_t kColours = 10, kChips = 12, kGroups = 6;
constexpr int64_t kRows = 16, kAlikeRows = 4;

constexpr std::string_view kStyle = R"svg(<style>
text { font-family: system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Helvetica, Arial, sans-serif; font-size: 12px; fill: #24292f; }
.title { font-size: 19px; font-weight: 600; }
.group { font-size: 15px; font-weight: 600; }
.panel { font-size: 13px; font-weight: 600; }
.quiet { fill: #626b77; }
.small { font-size: 11px; }
.number { font-size: 11px; text-anchor: middle; }
.right { text-anchor: end; }
.halo { paint-order: stroke; stroke: #f4f5f7; stroke-width: 4px; stroke-linejoin: round; }
.page { fill: #ffffff; }
.line { stroke: #dde1e6; }
.trained { fill: #2f6f4f; }
.badge { fill: #e2efe7; }
.pad { fill: #f4f5f7; stroke: #c3c9d1; }
.hatch { stroke: #9aa3af; stroke-width: 1.4; }
.c0 { fill: #b5d0e9; } .c1 { fill: #f3d3a0; } .c2 { fill: #bcdcc7; } .c3 { fill: #edc0b5; }
.c4 { fill: #d2caea; } .c5 { fill: #dfdca6; } .c6 { fill: #b2dcdd; } .c7 { fill: #e7c5d7; }
.c8 { fill: #dccdbb; } .c9 { fill: #cde2a6; }
.own { opacity: .42; }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7eb; }
  .quiet { fill: #98a2ae; }
  .halo { stroke: #20252c; }
  .page { fill: #14171b; }
  .line { stroke: #2c323a; }
  .trained { fill: #8fd0ae; }
  .badge { fill: #1d3328; }
  .pad { fill: #20252c; stroke: #474f59; }
  .hatch { stroke: #69727e; }
  .c0 { fill: #2f587f; } .c1 { fill: #7b5b22; } .c2 { fill: #34644b; } .c3 { fill: #80453a; }
  .c4 { fill: #554a88; } .c5 { fill: #615f26; } .c6 { fill: #29656a; } .c7 { fill: #744160; }
  .c8 { fill: #65543f; } .c9 { fill: #4c6424; }
  .own { opacity: .55; }
}
</style>
<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line class="hatch" x1="0" y1="0" x2="0" y2="6"/></pattern></defs>
)svg";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  return out;
}

double width_of(std::string_view text) { return kCharacter * static_cast<double>(text.size()); }

class Drawing {
 public:
  explicit Drawing(const Layout& layout) : l_(layout) {
    const auto n = static_cast<double>(l_.packings.size());
    panel_ = (kWidth - 2 * kMargin - kLabels - (n - 1) * kGap) / n;
  }

  std::string draw() {
    y_ = kMargin + 16;
    text(kMargin, "title", l_.name);
    y_ += 22;
    text(kMargin, "quiet",
         fmt::format("{} elements in {} parameters on {} rank{}{}. A row is what a rank {}.",
                     grouped(l_.numel), grouped(l_.params), l_.ranks, l_.ranks == 1 ? "" : "s",
                     l_.replicas > 1 ? fmt::format(" ({} replicas alike)", l_.replicas) : "",
                     // The flat buffer is whole on every rank, in the compute type.
                     l_.trained && l_.packings[*l_.trained] == Packing::zero_flat
                         ? "stores; of DeepSpeed's flat buffer, the part that it optimizes"
                         : "stores"));
    y_ += 17;
    text(kMargin, "quiet",
         "FSDP1 cuts one flat parameter into equal chunks, wherever they fall; FSDP2 cuts each "
         "parameter by rows. Hatched is padding, in a colour where it is that parameter's own.");
    size_t drawn = 0, left = 0;
    for (const LayoutGroup& g : l_.groups) {
      if (l_.query.any() ? !g.shown : g.like == 0) continue;
      if (drawn == kGroups) {
        ++left;
        continue;
      }
      ++drawn;
      group(g);
    }
    if (left > 0) {
      y_ += 34;
      text(kMargin, "quiet",
           fmt::format("{} more groups are not drawn; --group NAME draws those of a name.", left));
    }
    const double height = y_ + kMargin;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" "
        "height=\"{1:g}\" role=\"img\">\n<title>Where the elements of {2} live</title>\n{3}"
        "<rect class=\"page\" width=\"{0:g}\" height=\"{1:g}\"/>\n{4}</svg>\n",
        kWidth, height, escaped(l_.name), kStyle, out_);
  }

 private:
  void text(double x, std::string_view cls, std::string_view words) {
    out_ += fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", cls, x, y_,
                        escaped(words));
  }
  void rect(const std::string& cls, double x, double y, double w, double h, double r = 0) {
    out_ += fmt::format(
        "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" "
        "height=\"{:.2f}\"{}/>\n",
        cls, x, y, w, h, r > 0 ? fmt::format(" rx=\"{:g}\"", r) : "");
  }
  void hatch(double x, double y, double w, double h, double r) {
    out_ += fmt::format(
        "<rect fill=\"url(#hatch)\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" "
        "height=\"{:.2f}\" rx=\"{:g}\"/>\n",
        x, y, w, h, r);
  }
  double panel_x(size_t packing) const {
    return kMargin + kLabels + static_cast<double>(packing) * (panel_ + kGap);
  }

  void group(const LayoutGroup& g) {
    y_ += 26;
    out_ += fmt::format(
        "<line class=\"line\" x1=\"{0:g}\" x2=\"{1:g}\" y1=\"{2:.1f}\" "
        "y2=\"{2:.1f}\"/>\n",
        kMargin, kWidth - kMargin, y_);
    y_ += 28;
    std::string name = g.name;
    if (!l_.query.any() && g.like > 1) name += fmt::format(" .. {}, {} alike", g.last, g.like);
    text(kMargin, "group", name);
    colour_.clear();
    for (size_t p = 0; p < g.packed[0].params.size(); ++p)
      colour_[g.packed[0].params[p].id.v] = p % kColours;
    legend(g);
    if (!l_.trained) whole(g);
    titles(g);
    rows(g);
  }

  void legend(const LayoutGroup& g) {
    y_ += 24;
    double x = kMargin;
    const size_t n = g.packed[0].params.size();
    const auto chip = [&](const std::string& words) {
      const double w = 18 + width_of(words) + 22;
      if (x + w > kWidth - kMargin && x > kMargin) {
        x = kMargin;
        y_ += 20;
      }
      x += w;
      return x - w;
    };
    for (size_t p = 0; p < std::min(n, kChips); ++p) {
      const std::string& name = g.names[0][p];
      const std::string count = grouped(g.packed[0].params[p].shape.numel());
      const double at = chip(name + " " + count);
      rect(fmt::format("c{}", p % kColours), at, y_ - 10, 12, 12, 3);
      out_ += fmt::format(
          "<text class=\"small\" x=\"{:.1f}\" y=\"{:.1f}\">{}<tspan "
          "class=\"quiet\" dx=\"6\">{}</tspan></text>\n",
          at + 18, y_, escaped(name), count);
    }
    if (n > kChips) {
      const std::string words = fmt::format("and {} more", n - kChips);
      text(chip(words), "small quiet", words);
    }
    bool pads = false;
    for (const PackedGroup& p : g.packed) pads = pads || p.padding() > 0;
    if (!pads) return;
    const double at = chip("padding");
    rect("pad", at, y_ - 10, 12, 12, 3);
    hatch(at, y_ - 10, 12, 12, 3);
    text(at + 18, "small", "padding");
  }

  // As trained: every element, in the order of the parameters, on every rank; on a scale of its own.
  void whole(const LayoutGroup& g) {
    y_ += 30;
    text(kMargin + kLabels, "panel", fmt::format("As trained ({}): whole", l_.strategy));
    y_ += 17;
    text(kMargin + kLabels, "small quiet",
         fmt::format("{} elements on every rank, not to the scale of the rows below",
                     grouped(g.packed[0].numel)));
    y_ += 12;
    out_ += fmt::format("<text class=\"small quiet\" x=\"{:g}\" y=\"{:.1f}\">all</text>\n", kMargin,
                        y_ + kRow / 2 + 4);
    const double scale =
        std::min(kCell, (kWidth - 2 * kMargin - kLabels) / static_cast<double>(g.packed[0].numel));
    right_ = kWidth - kMargin;
    double x = kMargin + kLabels;
    for (uint32_t p = 0; p < g.packed[0].params.size(); ++p) {
      const Piece piece{Piece::Of::param, p, 0, g.packed[0].params[p].shape.numel()};
      draw(g, 0, piece, x, scale);
      x += scale * static_cast<double>(piece.count);
    }
    y_ += kRow;
  }

  void titles(const LayoutGroup& g) {
    y_ += 32;
    for (size_t i = 0; i < l_.packings.size(); ++i) {
      const double x = panel_x(i);
      const std::string title(title_of(l_.packings[i]));
      text(x, "panel", title);
      if (i != l_.trained) continue;
      constexpr double kBadge = 72;
      const double at =
          std::min(x + 8.1 * static_cast<double>(title.size()) + 12, x + panel_ - kBadge);
      rect("badge", at, y_ - 12, kBadge, 17, 8.5);
      out_ += fmt::format(
          "<text class=\"small trained\" text-anchor=\"middle\" x=\"{:.1f}\" "
          "y=\"{:.1f}\">as trained</text>\n",
          at + 36, y_);
    }
    y_ += 17;
    const bool narrow = l_.packings.size() > 3;
    for (size_t i = 0; i < l_.packings.size(); ++i) {
      const PackedGroup& p = g.packed[i];
      const std::string stored = fmt::format("{} elements a rank", grouped(p.shard));
      const std::string padding =
          p.padding() == 0
              ? "no padding"
              : fmt::format("{} of {} padding", grouped(p.padding()), grouped(p.ranks * p.shard));
      if (!narrow) {
        text(panel_x(i), "small quiet", stored + ", " + padding);
        continue;
      }
      text(panel_x(i), "small quiet", stored);
      y_ += 15;
      text(panel_x(i), "small quiet", padding);
      y_ -= 15;
    }
    if (narrow) y_ += 15;
    y_ += 12;
  }

  void rows(const LayoutGroup& g) {
    int64_t widest = 1;
    for (const PackedGroup& p : g.packed) widest = std::max(widest, p.shard);
    const double scale = std::min(kCell, panel_ / static_cast<double>(widest));
    const int64_t ranks = g.packed[2].ranks;
    const auto row = [&](int64_t rank) {
      out_ += fmt::format("<text class=\"small quiet\" x=\"{:g}\" y=\"{:.1f}\">rank {}</text>\n",
                          kMargin, y_ + kRow / 2 + 4, rank);
      for (size_t i = 0; i < l_.packings.size(); ++i) pieces(g, i, rank, scale);
      y_ += kRow + kRowGap;
    };
    if (l_.query.rank) {
      if (*l_.query.rank < ranks) row(*l_.query.rank);
      y_ -= kRowGap;
      return;
    }
    // One parameter that divides has the same row on every rank.
    bool dull = g.packed[0].params.size() == 1;
    for (const PackedGroup& p : g.packed) dull = dull && p.padding() == 0;
    const int64_t most = dull ? kAlikeRows : kRows;
    if (ranks <= most) {
      for (int64_t r = 0; r < ranks; ++r) row(r);
    } else {
      const int64_t last = dull ? 1 : 2, first = most - 1 - last;
      for (int64_t r = 0; r < first; ++r) row(r);
      y_ += 12;
      text(kMargin, "small quiet", fmt::format("... {} more ranks", ranks - first - last));
      y_ += 12;
      for (int64_t r = ranks - last; r < ranks; ++r) row(r);
    }
    y_ -= kRowGap;
  }

  void pieces(const LayoutGroup& g, size_t packing, int64_t rank, double scale) {
    const PackedGroup& p = g.packed[packing];
    double x = panel_x(packing);
    right_ = x + panel_;
    for (const Piece& piece : p.pieces(rank)) {
      draw(g, packing, piece, x, scale);
      x += scale * static_cast<double>(piece.count);
    }
  }

  void draw(const LayoutGroup& g, size_t packing, const Piece& piece, double x, double scale) {
    if (!l_.shows(g, packing, piece)) return;
    if (scale >= kSeparate)
      cells(g, packing, piece, x, scale);
    else
      bar(g, packing, piece, x, scale * static_cast<double>(piece.count));
  }

  std::string colour(const PackedGroup& p, const Piece& piece) {
    return fmt::format("c{}", colour_[p.params[piece.param].id.v]);
  }

  void box(const PackedGroup& p, const Piece& piece, double x, double w, double r) {
    if (!piece.padding()) {
      rect(colour(p, piece), x, y_, w, kRow, r);
      return;
    }
    rect("pad", x + .5, y_ + .5, std::max(w - 1, .3), kRow - 1, r);
    if (piece.of == Piece::Of::own) rect(colour(p, piece) + " own", x, y_, w, kRow, r);
    hatch(x, y_, w, kRow, r);
  }

  void cells(const LayoutGroup& g, size_t packing, const Piece& piece, double x, double scale) {
    const PackedGroup& p = g.packed[packing];
    const double w = scale - 3;
    for (int64_t i = 0; i < piece.count; ++i) {
      const double at = x + scale * static_cast<double>(i);
      box(p, piece, at, w, 4);
      if (piece.padding() || p.params[piece.param].dim > 0) continue;
      out_ += fmt::format("<text class=\"number\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                          at + w / 2, y_ + kRow / 2 + 4, piece.begin + i);
    }
    if (!piece.padding() || piece.of == Piece::Of::own) return;
    label(name_of(piece.of), x, scale * static_cast<double>(piece.count) - 3, " halo");
  }

  void bar(const LayoutGroup& g, size_t packing, const Piece& piece, double x, double w) {
    const PackedGroup& p = g.packed[packing];
    // A hair's breadth stays visible, inside the row; wider pieces leave a gap to the next.
    const double shown = std::max(w > 4 ? w - 1 : w, .6);
    const double with_line = piece.padding() ? std::max(shown, 1.3) : shown;
    box(p, piece, std::min(x, right_ - with_line), shown, w > 8 ? 2.5 : 0);
    if (piece.padding() && piece.of != Piece::Of::own)
      label(name_of(piece.of), x, w - 1, " halo");
    else if (!piece.padding())
      label(g.names[packing][piece.param], x, w - 1, "");
  }

  // In the middle of a box: the whole name, without ".weight", or without its first parts, as it
  // fits; or nothing.
  void label(std::string_view words, double x, double w, std::string_view cls) {
    constexpr std::string_view kWeight = ".weight";
    if (width_of(words) + 8 > w && words.ends_with(kWeight)) words.remove_suffix(kWeight.size());
    while (width_of(words) + 8 > w) {
      const size_t dot = words.find('.');
      if (dot == std::string_view::npos) return;
      words.remove_prefix(dot + 1);
    }
    if (words.find_first_not_of("0123456789") == std::string_view::npos) return;
    out_ += fmt::format("<text class=\"number{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", cls,
                        x + w / 2, y_ + kRow / 2 + 4, escaped(words));
  }

  const Layout& l_;
  double panel_ = 0, y_ = 0;
  double right_ = 0;                   // where the row ends
  std::map<uint32_t, size_t> colour_;  // by ParamId
  std::string out_;
};

}  // namespace

std::string layout_svg(const Layout& layout) { return Drawing(layout).draw(); }

}  // namespace shardsim
