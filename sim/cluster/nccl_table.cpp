#include "sim/cluster/nccl_table.h"

#include <algorithm>
#include <cmath>

namespace shardsim {

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
  const NcclSweep* found = nullptr;
  for (const NcclSweep& s : sweeps)
    if (s.collective == collective && s.ranks == ranks && (s.nodes == 0 || s.nodes == nodes))
      found = &s;
  if (!found) return std::nullopt;
  return found->us(bytes);
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
