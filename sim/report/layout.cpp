#include "sim/report/layout.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/spelling.h"
#include "sim/report/repeats.h"
#include "sim/report/text.h"

namespace shardsim {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kRanksShown = 8;  // of a group in text, without --rank
constexpr size_t kInLine = 3;       // pieces of a rank that stand in one line
constexpr size_t kParamsShown = 8;  // of a group that is shown unasked

std::string group_name(const Model& model, const Group& g) {
  return g.modules.size() == 1 && g.modules[0].v == 0 ? "(root)" : g.name(model);
}

bool alike(const PackedGroup& a, const PackedGroup& b) {
  return a.ranks == b.ranks &&
         std::equal(a.params.begin(), a.params.end(), b.params.begin(), b.params.end(),
                    [](const PackedParam& x, const PackedParam& y) {
                      return x.shape == y.shape && x.dim == y.dim;
                    });
}

void check_rank(const LayoutQuery& query, int64_t ranks) {
  if (query.rank && (*query.rank < 0 || *query.rank >= ranks))
    throw Error(fmt::format("--rank: expected a rank from 0 to {}, got {}", ranks - 1, *query.rank),
                {}, "the ranks of the scenario's shard mesh");
}

// Marks the groups whose elements are to be shown.
void select(Layout& layout) {
  const LayoutQuery& q = layout.query;
  bool group_found = q.group.empty(), param_found = q.param.empty();
  for (LayoutGroup& x : layout.groups) {
    const bool named = q.group.empty() || matches(q.group, x.name);
    group_found = group_found || named;
    const std::vector<std::string>& names = x.names[0];
    const bool has = std::any_of(names.begin(), names.end(),
                                 [&](const std::string& name) { return layout.named(x, name); });
    param_found = param_found || has;
    x.shown = named && has && (!q.group.empty() || !q.param.empty());
  }
  if (!group_found) {
    std::vector<std::string_view> names;
    for (const LayoutGroup& x : layout.groups) names.push_back(x.name);
    throw Error(fmt::format("--group: there is no group '{}'", q.group), {},
                names.size() > 20 ? fmt::format("the groups are {} .. {}; * stands for any run of "
                                                "characters",
                                                names.front(), names.back())
                                  : spelling_hint(q.group, names, "groups"));
  }
  if (!param_found)
    throw Error(fmt::format("--param: there is no parameter '{}'", q.param), {},
                "names are those of named_parameters(); * stands for any run of characters");
  if (!q.group.empty() || !q.param.empty()) return;
  // Unasked: of a model that is small enough, everything that is not alike; with --rank anyway.
  size_t params = 0;
  for (const LayoutGroup& x : layout.groups)
    if (x.like > 0) params += x.packed[0].params.size();
  for (LayoutGroup& x : layout.groups)
    x.shown = x.like > 0 && (q.rank.has_value() || params <= kParamsShown);
}

}  // namespace

bool Layout::named(const LayoutGroup& group, const std::string& param) const {
  return query.param.empty() || matches(query.param, param) ||
         matches(query.param, group.name + "." + param);
}

bool Layout::shows(const LayoutGroup& group, size_t packing, const Piece& piece) const {
  if (query.param.empty()) return true;
  if (piece.of == Piece::Of::world || piece.of == Piece::Of::chunk) return false;
  return named(group, group.names[packing][piece.param]);
}

Layout make_layout(const Scenario& scenario, const Model& model, const Plan& plan,
                   const LayoutQuery& query) {
  const Training& t = scenario.training;
  // What keeps every element on every rank is cut as sharding over them all would.
  const int64_t ranks = keeps_parameters_whole(t.strategy) ? t.mesh.world() : t.mesh.shard;
  check_rank(query, ranks);
  Layout out;
  out.name = scenario.name;
  out.strategy = name_of(t.strategy);
  out.packings.assign(kPackings.begin(), kPackings.end());
  if (const std::optional<Packing> own = packing_of(t)) {
    const auto at = std::find(out.packings.begin(), out.packings.end(), *own);
    out.trained = static_cast<size_t>(at - out.packings.begin());
    if (at == out.packings.end()) out.packings.push_back(*own);
  }
  out.type = name_of(compute_dtype(t.precision));
  out.ranks = ranks;
  out.replicas = t.mesh.world() / ranks;
  out.numel = model.numel();
  out.query = query;
  out.groups.reserve(plan.groups.size());
  for (const Group& g : plan.groups) {
    LayoutGroup& x = out.groups.emplace_back();
    x.name = group_name(model, g);
    out.params += static_cast<int64_t>(g.params.size());
    for (const Packing packing : out.packings) {
      x.packed.push_back(pack(model, g, t, packing));
      std::vector<std::string>& names = x.names.emplace_back();
      for (const PackedParam& p : x.packed.back().params) {
        std::string name = model.param_name(p.id);
        if (name.starts_with(x.name + ".")) name.erase(0, x.name.size() + 1);
        names.push_back(std::move(name));
      }
    }
    x.last = x.name;
    x.like = 0;
  }
  for (const Repeat& r : repeats(out.groups.size(), [&](size_t a, size_t b) {
         return alike(out.groups[a].packed[2], out.groups[b].packed[2]);
       })) {
    out.groups[r.first].like = r.count;
    out.groups[r.first].last = out.groups[r.last()].name;
  }
  select(out);
  return out;
}

std::string piece_text(const LayoutGroup& group, size_t packing, const Piece& piece) {
  const auto i = packing;
  switch (piece.of) {
    case Piece::Of::alignment:
    case Piece::Of::world:
    case Piece::Of::chunk: return fmt::format("({} {})", grouped(piece.count), name_of(piece.of));
    case Piece::Of::own:
      return fmt::format("({} of {})", grouped(piece.count), group.names[i][piece.param]);
    case Piece::Of::param: break;
  }
  const PackedParam& p = group.packed[i].params[piece.param];
  int64_t begin = piece.begin, count = piece.count;
  std::string dim;
  if (p.dim > 0) {
    // A slice of another dimension than 0: rows of it, not elements.
    const int64_t each = p.shape.dim[static_cast<size_t>(p.dim)] / group.packed[i].ranks;
    begin = piece.begin / piece.count * each;
    count = each;
    dim = fmt::format("dim {}: ", p.dim);
  }
  return count == 1 ? fmt::format("{}[{}{}]", group.names[i][piece.param], dim, grouped(begin))
                    : fmt::format("{}[{}{}..{}]", group.names[i][piece.param], dim, grouped(begin),
                                  grouped(begin + count - 1));
}

namespace {

std::string padding_text(const LayoutGroup& g, size_t i) {
  const std::vector<Piece> owners = g.packed[i].padding_by_owner();
  if (owners.empty()) return "none";
  // Each owner where there are few, otherwise sums by kind.
  if (owners.size() <= 3) {
    std::string out;
    for (const Piece& p : owners) {
      if (!out.empty()) out += ", ";
      out += grouped(p.count);
      switch (p.of) {
        case Piece::Of::alignment: out += " alignment before " + g.names[i][p.param]; break;
        case Piece::Of::own: out += " of " + g.names[i][p.param]; break;
        case Piece::Of::chunk: out += " of the last chunks"; break;
        default: out += fmt::format(" {}", name_of(p.of));
      }
    }
    return out;
  }
  std::array<int64_t, 5> sums{};
  std::array<size_t, 5> counts{};
  for (const Piece& p : owners) {
    sums[static_cast<size_t>(p.of)] += p.count;
    ++counts[static_cast<size_t>(p.of)];
  }
  std::string out;
  for (size_t of = 1; of < sums.size(); ++of) {
    if (sums[of] == 0) continue;
    if (!out.empty()) out += ", ";
    out += grouped(sums[of]);
    switch (static_cast<Piece::Of>(of)) {
      case Piece::Of::alignment: out += fmt::format(" alignment before {}", counts[of]); break;
      case Piece::Of::own: out += fmt::format(" of {} parameters", counts[of]); break;
      case Piece::Of::chunk: out += " of the last chunks"; break;
      default: out += fmt::format(" {}", name_of(static_cast<Piece::Of>(of)));
    }
  }
  return out;
}

std::string range_name(const LayoutGroup& g) {
  return g.like > 1 ? g.name + " .. " + g.last : g.name;
}

void sums(Lines& out, const Layout& l) {
  std::vector<std::vector<std::string>> rows{{"group", "of them", "elements", "ranks"}};
  for (const Packing packing : l.packings) rows[0].emplace_back(short_title_of(packing));
  rows[0].emplace_back("padding of each");
  std::string align = "lrrr" + std::string(l.packings.size(), 'r') + "l";
  // Of those that are asked for by name, each.
  const bool named = !l.query.group.empty() || !l.query.param.empty();
  for (const LayoutGroup& g : l.groups) {
    if (named ? !g.shown : g.like == 0) continue;
    std::vector<std::string> row{named ? g.name : range_name(g),
                                 named ? "1" : std::to_string(g.like), grouped(g.packed[0].numel),
                                 std::to_string(g.packed[2].ranks)};
    std::string padding;
    for (const PackedGroup& p : g.packed) {
      row.push_back(grouped(p.shard));
      padding += (padding.empty() ? "" : " / ") + grouped(p.padding());
    }
    row.push_back(std::move(padding));
    rows.push_back(std::move(row));
  }
  out.add("elements that a rank stores of each group, and the padding over all ranks");
  out.text(aligned(rows, align));
}

void map(Lines& out, const Layout& l, const LayoutGroup& g) {
  std::string params;
  for (size_t p = 0; p < g.packed[0].params.size() && p < 4; ++p)
    params += fmt::format("{}{} ({})", p > 0 ? ", " : "", g.names[0][p],
                          grouped(g.packed[0].params[p].shape.numel()));
  if (g.packed[0].params.size() > 4)
    params += fmt::format(", {} more", g.packed[0].params.size() - 4);
  out.add("");
  out.add("{}: {} on {} ranks", range_name(g), params, g.packed[2].ranks);
  std::vector<std::vector<std::string>> rows(3);
  rows[0].emplace_back("");
  rows[1].emplace_back("stores");
  rows[2].emplace_back("padding");
  for (size_t i = 0; i < l.packings.size(); ++i) {
    rows[0].push_back(std::string(title_of(l.packings[i])) + (i == l.trained ? " *" : ""));
    rows[1].push_back(fmt::format("{} a rank", grouped(g.packed[i].shard)));
    rows[2].push_back(padding_text(g, i));
  }
  const int64_t ranks = g.packed[2].ranks;
  const int64_t from = l.query.rank.value_or(0);
  const int64_t end = l.query.rank ? std::min(from + 1, ranks) : std::min(ranks, kRanksShown);
  for (int64_t rank = from; rank < end; ++rank) {
    std::vector<std::vector<std::string>> cells(l.packings.size());
    size_t lines = 1, most = 0;
    for (size_t i = 0; i < cells.size(); ++i) {
      for (const Piece& piece : g.packed[i].pieces(rank))
        if (l.shows(g, i, piece)) cells[i].push_back(piece_text(g, i, piece));
      most = std::max(most, cells[i].size());
    }
    if (most <= kInLine) {
      for (auto& cell : cells) {
        std::string line;
        for (const std::string& piece : cell) line += (line.empty() ? "" : " ") + piece;
        cell.assign(1, line);
      }
    } else {
      lines = most;
    }
    for (size_t i = 0; i < lines; ++i) {
      std::vector<std::string> row{i == 0 ? fmt::format("rank {}", rank) : ""};
      for (const auto& cell : cells) row.push_back(i < cell.size() ? cell[i] : "");
      rows.push_back(std::move(row));
    }
  }
  out.text(aligned(rows, std::string(1 + l.packings.size(), 'l')));
  if (!l.query.rank && end < ranks) out.add("  .. rank {}; --rank shows one", ranks - 1);
}

}  // namespace

std::string layout_table(const Layout& l) {
  Lines out;
  out.add("{}: {} parameters, {} elements, {} rank{}{}, alignment in {}", l.name, l.params,
          grouped(l.numel), l.ranks, l.ranks == 1 ? "" : "s",
          l.replicas > 1 ? fmt::format(" ({} replicas alike)", l.replicas) : "", l.type);
  out.add("trained with {}{}", l.strategy,
          l.trained ? fmt::format(": {}", title_of(l.packings[*l.trained]))
                    : ", which keeps every element on every rank; below, what sharding would do");
  out.add("");
  sums(out, l);
  bool any = false;
  for (const LayoutGroup& g : l.groups) {
    if (!g.shown) continue;
    map(out, l, g);
    any = true;
  }
  out.add("");
  if (any)
    out.add("p[a..b]: elements a to b of p; (n ...): n elements of padding and whose{}",
            l.trained ? "; *: as trained" : "");
  else
    out.add("--group NAME, --param NAME and --rank R show where each element lives");
  return out.take();
}

std::string layout_json(const Layout& l) {
  Json j{{"schema_version", 1},
         {"name", l.name},
         {"strategy", l.strategy},
         {"trained", l.trained ? Json(name_of(l.packings[*l.trained])) : Json(nullptr)},
         {"ranks", l.ranks},
         {"replicas", l.replicas}};
  j["groups"] = Json::array();
  for (const LayoutGroup& g : l.groups) {
    if (l.query.any() && !g.shown) continue;
    Json& group = j["groups"].emplace_back();
    group["name"] = g.name;
    group["numel"] = g.packed[0].numel;
    group["layouts"] = Json::array();
    for (size_t i = 0; i < l.packings.size(); ++i) {
      const PackedGroup& p = g.packed[i];
      Json x{{"layout", name_of(l.packings[i])},
             {"ranks", p.ranks},
             {"shard_elements", p.shard},
             {"padding_elements", p.padding()}};
      x["parameters"] = Json::array();
      for (size_t q = 0; q < p.params.size(); ++q) {
        const Shape& s = p.params[q].shape;
        x["parameters"].push_back(
            {{"name", g.names[i][q]},
             {"shape", std::vector<int64_t>(s.dim.begin(), s.dim.begin() + s.rank)},
             {"dim", p.params[q].dim}});
      }
      x["padding"] = Json::array();
      for (const Piece& piece : p.padding_by_owner())
        x["padding"].push_back(
            {{"of", name_of(piece.of)},
             {"parameter", piece.of == Piece::Of::world || piece.of == Piece::Of::chunk
                               ? Json(nullptr)
                               : Json(piece.param)},
             {"elements", piece.count}});
      x["rank_pieces"] = Json::array();
      for (int64_t rank = 0; rank < p.ranks; ++rank) {
        if (l.query.rank && rank != *l.query.rank) continue;
        Json pieces = Json::array();
        for (const Piece& piece : p.pieces(rank)) {
          if (!l.shows(g, i, piece)) continue;
          if (piece.padding())
            pieces.push_back({{"padding", name_of(piece.of)}, {"elements", piece.count}});
          else
            pieces.push_back(
                {{"parameter", piece.param}, {"begin", piece.begin}, {"elements", piece.count}});
        }
        x["rank_pieces"].push_back({{"rank", rank}, {"pieces", std::move(pieces)}});
      }
      group["layouts"].push_back(std::move(x));
    }
  }
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string layout_csv(const Layout& l) {
  std::string out = "group,layout,rank,parameter,padding,begin,elements\n";
  for (const LayoutGroup& g : l.groups) {
    if (l.query.any() && !g.shown) continue;
    for (size_t i = 0; i < l.packings.size(); ++i) {
      for (int64_t rank = 0; rank < g.packed[i].ranks; ++rank) {
        if (l.query.rank && rank != *l.query.rank) continue;
        for (const Piece& piece : g.packed[i].pieces(rank)) {
          if (!l.shows(g, i, piece)) continue;
          const bool named = !piece.padding() || piece.of == Piece::Of::own;
          out += fmt::format("{},{},{},{},{},{},{}\n", csv_field(g.name), name_of(l.packings[i]),
                             rank, named ? csv_field(g.names[i][piece.param]) : "",
                             piece.padding() ? name_of(piece.of) : "",
                             piece.padding() ? "" : std::to_string(piece.begin), piece.count);
        }
      }
    }
  }
  return out;
}

}  // namespace shardsim
