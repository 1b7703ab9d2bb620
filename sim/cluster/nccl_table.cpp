#include "sim/cluster/nccl_table.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "sim/cluster/nccl_sweep_reach.h"

namespace shardsim {

namespace {

constexpr size_t kRankCounts = 3;  // that a line needs

// What each rank sends of the whole bytes, but for a factor.
double ring_share(std::string_view collective, int64_t ranks) {
  if (collective == "broadcast" || collective == "reduce") return 1;
  return static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

// A number of ranks that was not swept, from three others or more on as many nodes. A ring's latency is
// linear in its ranks, so the times of the smallest messages lie on a line (least squares); what larger
// ones take beyond theirs is scaled from the nearest number by a ring's share of bytes.
// Worked number: all-reduces of 8 bytes in 10, 13.76, 16.88 and 20.8 us over 2 to 5 ranks give 31.3 us
// over 8.
struct Others {
  double latency = 0;
  const NcclSweep* nearest = nullptr;
};
std::optional<Others> of_others(const std::vector<NcclSweep>& sweeps, std::string_view collective,
                                int64_t ranks, int64_t nodes) {
  std::map<int64_t, const NcclSweep*> swept;  // by ranks
  for (const NcclSweep& s : sweeps)
    if (s.collective == collective && s.ranks > 1 && s.nodes == nodes) swept[s.ranks] = &s;
  if (swept.size() < kRankCounts || ranks <= 1) return std::nullopt;
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  const NcclSweep* nearest = nullptr;
  for (const auto& [count, sweep] : swept) {
    const auto at = static_cast<double>(count);
    const double us = sweep->points.front().us;
    n += 1, x += at, y += us, xx += at * at, xy += at * us;
    if (!nearest || std::abs(count - ranks) < std::abs(nearest->ranks - ranks)) nearest = sweep;
  }
  const double slope = (n * xy - x * y) / (n * xx - x * x);
  const double latency = (y - slope * x) / n + slope * static_cast<double>(ranks);
  return Others{std::max(0.0, latency), nearest};
}

const NcclSweep* find_sweep(const std::vector<NcclSweep>& sweeps, std::string_view collective,
                            int64_t ranks, int64_t nodes) {
  const NcclSweep* found = nullptr;
  for (const NcclSweep& s : sweeps)
    if (s.collective == collective && s.ranks == ranks && (s.nodes == 0 || s.nodes == nodes))
      found = &s;
  return found;
}

}  // namespace

double NcclSweep::us(Bytes bytes) const {
  if (bytes <= points.front().bytes) return points.front().us;
  const Point& last = points.back();
  if (bytes >= last.bytes)
    return last.us * static_cast<double>(bytes) / static_cast<double>(last.bytes);
  const auto above = std::lower_bound(points.begin(), points.end(), bytes,
                                      [](const Point& p, Bytes b) { return p.bytes < b; });
  const Point &b = *above, &a = *(above - 1);
  const double part = std::log(static_cast<double>(bytes) / static_cast<double>(a.bytes)) /
                      std::log(static_cast<double>(b.bytes) / static_cast<double>(a.bytes));
  return a.us * std::pow(b.us / a.us, part);
}

std::optional<double> NcclTable::us(std::string_view collective, int64_t ranks, int64_t nodes,
                                    Bytes bytes) const {
  if (const NcclSweep* found = find_sweep(sweeps, collective, ranks, nodes))
    return found->us(bytes);
  const std::optional<Others> others = of_others(sweeps, collective, ranks, nodes);
  if (!others) return std::nullopt;
  const NcclSweep& nearest = *others->nearest;
  const double moving = std::max(0.0, nearest.us(bytes) - nearest.points.front().us);
  return others->latency +
         moving * ring_share(collective, ranks) / ring_share(collective, nearest.ranks);
}

std::optional<Bytes> largest_swept(const NcclTable& table, std::string_view collective,
                                   int64_t ranks, int64_t nodes) {
  if (const NcclSweep* found = find_sweep(table.sweeps, collective, ranks, nodes))
    return found->points.back().bytes;
  const std::optional<Others> others = of_others(table.sweeps, collective, ranks, nodes);
  return others ? std::optional(others->nearest->points.back().bytes) : std::nullopt;
}

std::string NcclTable::contents() const {
  std::string out;
  for (const NcclSweep& s : sweeps) {
    if (!out.empty()) out += ", ";
    out += s.collective + " over " + std::to_string(s.ranks) + " ranks";
    if (s.nodes > 1) out += " on " + std::to_string(s.nodes) + " nodes";
  }
  return out;
}

}  // namespace shardsim
