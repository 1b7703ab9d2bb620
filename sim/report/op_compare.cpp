#include "sim/report/op_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <unordered_map>

#include "sim/report/step_report.h"
#include "sim/report/text.h"

namespace shardsim {
namespace {

constexpr size_t kWorst = 10;
constexpr double kSame = .01;       // relative, of sizes and counts
constexpr double kFromWhole = .02;  // of a ratio: 1 % of 2
constexpr double kMostTimes = 64;   // beside the number of ranks

using Roles = std::vector<std::string>;

std::vector<size_t> by_start(const OpLog& log) {
  std::vector<size_t> order(log.ops.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(log.ops[a].start, log.ops[a].launch) <
           std::tie(log.ops[b].start, log.ops[b].launch);
  });
  return order;
}

bool names_groups(const OpLog& log) {
  return std::any_of(log.ops.begin(), log.ops.end(),
                     [](const LoggedOp& op) { return !op.group.empty(); });
}

// Joins what is left of both logs, more loosely at each call.
class Join {
 public:
  Join(const OpLog& predicted, const OpLog& measured)
      : log_{&predicted, &measured},
        roles_{stream_roles(predicted), stream_roles(measured)},
        left_{by_start(predicted), by_start(measured)} {}

  void by_launch() {
    std::unordered_map<uint32_t, size_t> at;
    for (const size_t i : left_[1])
      if (log_[1]->ops[i].launch) at.emplace(*log_[1]->ops[i].launch, i);
    std::vector<bool> taken(log_[1]->ops.size());
    std::vector<size_t> alone;
    for (const size_t i : left_[0]) {
      const LoggedOp& op = log_[0]->ops[i];
      const auto found = op.launch ? at.find(*op.launch) : at.end();
      if (found == at.end()) {
        alone.push_back(i);
        continue;
      }
      pairs_.push_back({i, found->second});
      taken[found->second] = true;
    }
    left_[0] = std::move(alone);
    std::erase_if(left_[1], [&](size_t i) { return taken[i]; });
  }

  void in_order(bool with_role, bool with_group) {
    using Key = std::tuple<WorkKind, std::string, std::string>;
    std::map<Key, std::vector<size_t>> ops[2];
    for (size_t side = 0; side < 2; ++side)
      for (const size_t i : left_[side]) {
        const LoggedOp& op = log_[side]->ops[i];
        ops[side][{op.kind, with_role ? roles_[side][op.stream] : "", with_group ? op.group : ""}]
            .push_back(i);
      }
    for (auto& [key, predicted] : ops[0]) {
      std::vector<size_t>& measured = ops[1][key];
      if (is_compute(std::get<0>(key)) && predicted.size() != measured.size()) continue;
      const size_t n = std::min(predicted.size(), measured.size());
      for (size_t i = 0; i < n; ++i) pairs_.push_back({predicted[i], measured[i]});
      predicted.erase(predicted.begin(), predicted.begin() + static_cast<ptrdiff_t>(n));
      measured.erase(measured.begin(), measured.begin() + static_cast<ptrdiff_t>(n));
    }
    for (size_t side = 0; side < 2; ++side) {
      std::vector<bool> keep(log_[side]->ops.size());
      for (const auto& [key, rest] : ops[side])
        for (const size_t i : rest) keep[i] = true;
      std::erase_if(left_[side], [&](size_t i) { return !keep[i]; });
    }
  }

  std::vector<Unmatched> unmatched() const {
    std::vector<Unmatched> out;
    for (size_t side = 0; side < 2; ++side)
      for (const size_t i : left_[side]) {
        const LoggedOp& op = log_[side]->ops[i];
        const std::string& role = roles_[side][op.stream];
        const std::string group = folded_name(op.group);
        const auto same = [&](const Unmatched& u) {
          return u.measured == (side == 1) && u.kind == op.kind && u.role == role &&
                 u.group == group;
        };
        const auto it = std::find_if(out.begin(), out.end(), same);
        if (it == out.end())
          out.push_back({side == 1, op.kind, role, group, op.name, 1});
        else
          ++it->count;
      }
    return out;
  }

  std::vector<OpPair> take_pairs() {
    std::sort(pairs_.begin(), pairs_.end(),
              [](const OpPair& a, const OpPair& b) { return a.predicted < b.predicted; });
    return std::move(pairs_);
  }
  const Roles& roles(size_t side) const { return roles_[side]; }

 private:
  const OpLog* log_[2];
  Roles roles_[2];
  std::vector<size_t> left_[2];
  std::vector<OpPair> pairs_;
};

template <class KeyOf>
std::vector<OpRow> rows_of(const OpComparison& c, KeyOf&& key_of) {
  std::vector<OpRow> rows;
  std::map<std::pair<WorkKind, std::string>, size_t> at;
  for (size_t side = 0; side < 2; ++side)
    for (const LoggedOp& op : c.log[side].ops) {
      const std::optional<std::pair<WorkKind, std::string>> key = key_of(side, op);
      if (!key) continue;
      const auto [it, fresh] = at.try_emplace(*key, rows.size());
      if (fresh) rows.push_back({key->first, key->second, {}, {}, {Bytes{0}, Bytes{0}}});
      OpRow& row = rows[it->second];
      ++row.count[side];
      row.time[side] += op.duration;
      std::optional<Bytes>& bytes = row.bytes[side];
      bytes = bytes && op.bytes ? std::optional(*bytes + *op.bytes) : std::nullopt;
    }
  return rows;
}

bool is_times(double ratio, double wanted) { return std::abs(ratio / wanted - 1) < kSame; }

// 3 where measured is three times predicted, and -3 where it is a third; 0: neither, or alike.
int64_t factor_of(double predicted, double measured, int64_t world) {
  if (predicted <= 0 || measured <= 0) return 0;
  const double ratio = std::max(measured, predicted) / std::min(measured, predicted);
  const double n = std::round(ratio);
  const bool ranks = is_times(ratio, static_cast<double>(world));
  const bool whole = std::abs(ratio - n) < kFromWhole && n <= kMostTimes;
  if (n < 2 || (!ranks && !whole)) return 0;
  const int64_t times = ranks ? world : static_cast<int64_t>(n);
  return measured > predicted ? times : -times;
}

std::string times_text(int64_t factor) {
  if (factor == 2) return "twice";
  if (factor == -2) return "half";
  return factor > 0 ? fmt::format("{} times", factor) : fmt::format("1/{}", -factor);
}

std::string why_bytes(int64_t factor, int64_t world) {
  const int64_t times = std::abs(factor);
  std::string why;
  if (times == 2 || times == 4) why = "is its type another one";
  if (times == world)
    why += (why.empty() ? "is it" : ", or is it") + std::string(" a rank's part against the whole");
  return why.empty() ? "is it of another size, or another group of ranks" : why;
}

double per_op(const OpRow& row, size_t side) {
  return row.count[side] > 0 && row.bytes[side]
             ? static_cast<double>(*row.bytes[side]) / static_cast<double>(row.count[side])
             : 0;
}

struct FoldedFlag {
  std::string what;
  int64_t rows = 0;
};

void add_flags(OpComparison& c, const std::vector<OpRow>& rows) {
  std::vector<FoldedFlag> flags;
  const auto add = [&](std::string what) {
    for (FoldedFlag& f : flags)
      if (f.what == what) {
        ++f.rows;
        return;
      }
    flags.push_back({std::move(what), 1});
  };
  const int64_t world = c.log[0].world;
  for (const OpRow& row : rows) {
    if (!is_collective(row.kind) || row.count[0] == 0 || row.count[1] == 0) continue;
    const std::string name =
        std::string(name_of(row.kind)) + (row.key.empty() ? "" : " " + folded_name(row.key));
    const int64_t bytes = factor_of(per_op(row, 0), per_op(row, 1), world);
    if (bytes != 0)
      add(fmt::format("{}: each measured op moves {}{} the predicted bytes: {}?", name,
                      times_text(bytes), bytes < -2 ? " of" : "", why_bytes(bytes, world)));
    const int64_t count =
        factor_of(static_cast<double>(row.count[0]), static_cast<double>(row.count[1]), world);
    if (count != 0)
      add(
          fmt::format("{}: measured {} as often as predicted: other micro-batches, resharding or "
                      "buckets?",
                      name, times_text(count)));
  }
  for (const FoldedFlag& f : flags)
    c.flags.push_back(f.rows > 1 ? fmt::format("{} ({} groups)", f.what, f.rows) : f.what);
}

void add_scales(OpComparison& c) {
  c.same_scale = is_times(c.log[0].scale, c.log[1].scale);
  for (const OpLog& log : c.log)
    if (log.scale != 1)
      c.flags.push_back(fmt::format("{} ran with sizes scaled down by {}: {}", name_of(log.source),
                                    log.scale,
                                    c.same_scale ? "as the other log, so times compare"
                                                 : "times are no measure of the predicted ones"));
  const bool both = !c.log[0].fingerprint.empty() && !c.log[1].fingerprint.empty();
  if (both && !c.by_launch)
    c.flags.push_back(
        "the two logs are of different schedules (their fingerprints differ): ops are joined by "
        "kind, stream and group");
  if (c.log[0].world != c.log[1].world)
    c.flags.push_back(
        fmt::format("predicted for {} ranks, measured on {}", c.log[0].world, c.log[1].world));
}

}  // namespace

std::optional<double> OpComparison::step_error_pct() const {
  if (!same_scale || log[1].step_time.ps == 0) return std::nullopt;
  return 100 * (log[0].step_time.as_s() / log[1].step_time.as_s() - 1);
}

OpComparison compare_ops(OpLog predicted, OpLog measured) {
  OpComparison c;
  c.log[0] = std::move(predicted);
  c.log[1] = std::move(measured);
  for (size_t side = 0; side < 2; ++side) c.times[side] = op_times(c.log[side]);
  Join join(c.log[0], c.log[1]);
  c.by_launch = !c.log[0].fingerprint.empty() && c.log[0].fingerprint == c.log[1].fingerprint;
  if (c.by_launch) {
    join.by_launch();
  } else {
    const bool groups = names_groups(c.log[0]) && names_groups(c.log[1]);
    if (groups) join.in_order(true, true);
    if (groups) join.in_order(false, true);
    join.in_order(true, false);
    join.in_order(false, false);
  }
  c.pairs = join.take_pairs();
  c.unmatched = join.unmatched();
  add_scales(c);

  using Key = std::optional<std::pair<WorkKind, std::string>>;
  c.by_kind = rows_of(c, [](size_t, const LoggedOp& op) { return Key({op.kind, ""}); });
  c.by_group = rows_of(c, [](size_t, const LoggedOp& op) {
    return op.group.empty() ? Key() : Key({op.kind, op.group});
  });
  c.by_stream = rows_of(c, [&](size_t side, const LoggedOp& op) {
    return Key({WorkKind::Kernel, join.roles(side)[op.stream]});
  });
  std::stable_sort(c.by_kind.begin(), c.by_kind.end(),
                   [](const OpRow& a, const OpRow& b) { return a.kind < b.kind; });
  const bool groups = names_groups(c.log[0]) && names_groups(c.log[1]);
  std::vector<OpRow> flagged = groups ? c.by_group : std::vector<OpRow>();
  // What belongs to no group, or all where a log has none, is judged by kind.
  const std::vector<OpRow> rest = rows_of(c, [&](size_t, const LoggedOp& op) {
    return groups && !op.group.empty() ? Key() : Key({op.kind, ""});
  });
  flagged.insert(flagged.end(), rest.begin(), rest.end());
  add_flags(c, flagged);

  if (c.same_scale) {
    const auto off = [&](const OpPair& p) {
      return std::abs((c.log[0].ops[p.predicted].duration - c.log[1].ops[p.measured].duration).ps);
    };
    c.worst = c.pairs;
    std::stable_sort(c.worst.begin(), c.worst.end(),
                     [&](const OpPair& a, const OpPair& b) { return off(a) > off(b); });
    if (c.worst.size() > kWorst) c.worst.resize(kWorst);
    std::erase_if(c.worst, [&](const OpPair& p) { return off(p) == 0; });
  }
  return c;
}

}  // namespace shardsim
