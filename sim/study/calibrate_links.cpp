#include "sim/study/calibrate_links.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/quantity.h"

namespace shardsim {
namespace {

// t = steps x alpha + bytes x (1 / B) in one row.
struct Term {
  int line = 0;
  bool all_reduce = false;
  int64_t gpus = 0, nodes = 0;
  double steps = 0, bytes = 0;  // bytes times share
  double us = 0;
  std::string source;
};

class LinkReader {
 public:
  explicit LinkReader(const CsvTable& table) : table_(table) {}

  const std::string& text(const CsvRow& row, std::string_view column) const {
    return row.fields[table_.need(column)];
  }
  std::optional<double> number(const CsvRow& row, std::string_view column) const {
    const std::optional<size_t> at = table_.column(column);
    if (!at) return std::nullopt;
    const std::optional<double> value = number_of(table_, row, *at);
    if (value && *value <= 0)
      throw Error(fmt::format("{}: expected a number above 0, got '{}'", column, row.fields[*at]),
                  table_.place(row));
    return value;
  }
  int64_t whole(const CsvRow& row, std::string_view column) const {
    const Parsed<int64_t> n = parse_whole(text(row, column));
    constexpr int64_t kMost = int64_t{1} << 50;
    if (!n.ok() || n.value < 1 || n.value > kMost)
      throw Error(
          fmt::format("{}: expected a whole number above 0, got '{}'", column, text(row, column)),
          table_.place(row));
    return n.value;
  }

  // Why the row cannot be used, or nothing.
  std::string read(const CsvRow& row, Term& out) const {
    out.line = row.line;
    out.gpus = whole(row, "gpus");
    out.nodes = whole(row, "nodes");
    const int64_t bytes = whole(row, "bytes");
    const std::optional<double> us = number(row, "time_us"), alg = number(row, "algbw_GBs"),
                                bus = number(row, "busbw_GBs");
    out.source = table_.column("source") ? text(row, "source") : table_.file;
    const std::string& collective = text(row, "collective");
    out.all_reduce = collective == "all_reduce";
    if (!out.all_reduce && collective != "all_gather" && collective != "reduce_scatter")
      return fmt::format("no ring of '{}' is fitted", collective);
    if (out.gpus < 2) return "one GPU sends nothing";
    if (bytes < kLeastMessage) return "below 32 MiB NCCL runs other protocols";
    const double times = out.all_reduce ? 2 : 1;
    const auto n = static_cast<double>(out.gpus);
    out.steps = times * (n - 1);
    const double share = times * (n - 1) / n;
    out.bytes = share * static_cast<double>(bytes);
    if (us)
      out.us = *us;
    else if (alg)
      out.us = static_cast<double>(bytes) / (*alg * 1e3);
    else if (bus)
      out.us = out.bytes / (*bus * 1e3);
    else
      return "neither a time nor a rate";
    return "";
  }

 private:
  const CsvTable& table_;
};

// Two normal equations of rows divided by their times; alpha is never below 0.
Link solve(const std::vector<Term>& terms, const CsvTable& table, std::string_view link) {
  double aa = 0, ab = 0, bb = 0, a1 = 0, b1 = 0;
  for (const Term& t : terms) {
    const double a = t.steps / t.us, b = t.bytes / t.us;
    aa += a * a, ab += a * b, bb += b * b, a1 += a, b1 += b;
  }
  const double determinant = aa * bb - ab * ab;
  if (determinant <= 1e-9 * aa * bb)
    throw Error(fmt::format("links.{}: rows of one size cannot tell latency from bandwidth", link),
                {table.file}, "give rows of several sizes");
  double alpha = (a1 * bb - b1 * ab) / determinant, inverse = (b1 * aa - a1 * ab) / determinant;
  if (alpha < 0) alpha = 0, inverse = b1 / bb;
  if (inverse <= 0)
    throw Error(fmt::format("links.{}: the times do not grow with the bytes", link), {table.file});
  return {four_digits(alpha), four_digits(1 / (inverse * 1e3))};
}

double error_pct(const Link& link, const Term& t) {
  return std::abs((t.steps * link.alpha_us + t.bytes / (link.bus_gbps * 1e3)) / t.us - 1) * 100;
}

}  // namespace

CalibrationFile fit_links(const CsvTable& table, const std::string& system) {
  const LinkReader reader(table);
  std::set<std::string> systems;
  for (const CsvRow& row : table.rows) systems.insert(reader.text(row, "system"));
  if (!system.empty() && !systems.contains(system))
    throw Error(fmt::format("--system: the table has no rows of '{}'", system), {table.file},
                fmt::format("its systems are {}", fmt::join(systems, "; ")));
  if (system.empty() && systems.size() > 1)
    throw Error(fmt::format("the table has rows of {} systems", systems.size()), {table.file},
                fmt::format("name one of them with --system: {}", fmt::join(systems, "; ")));
  std::vector<Term> terms;
  std::string reason;
  int64_t most = 0;  // GPUs of a node
  for (const CsvRow& row : table.rows) {
    if (!system.empty() && reader.text(row, "system") != system) continue;
    Term term;
    if (const std::string why = reader.read(row, term); !why.empty()) {
      reason = fmt::format("line {}: {}", row.line, why);
      continue;
    }
    most = std::max(most, term.gpus / term.nodes);
    terms.push_back(std::move(term));
  }
  if (terms.empty()) throw Error("no row of the table can be used", {table.file}, reason);
  std::map<std::string, std::vector<Term>> by_link;
  for (Term& t : terms) {
    const bool one_each = t.gpus == t.nodes;
    if (t.nodes > 1 && !one_each && t.gpus < most * t.nodes) continue;
    by_link[t.nodes == 1 ? "intra" : one_each ? "rail" : "inter"].push_back(std::move(t));
  }
  CalibrationFile file;
  file.name = system.empty() ? *systems.begin() : system;
  std::map<std::string, std::vector<double>> errors;
  for (auto& [link, rows] : by_link) {
    const auto is_all_reduce = [](const Term& t) { return t.all_reduce; };
    if (!std::all_of(rows.begin(), rows.end(), is_all_reduce)) std::erase_if(rows, is_all_reduce);
    if (rows.size() < 2)
      throw Error(
          fmt::format("links.{}: only one row can be used: alpha and bandwidth need two", link),
          {table.file, rows[0].line, 0}, reason);
    const Link fitted = solve(rows, table, link);
    file.links.emplace(link, fitted);
    for (const Term& t : rows)
      errors[fmt::format("{}, {}{}", t.source, link, t.all_reduce ? " (all-reduce)" : "")]
          .push_back(error_pct(fitted, t));
  }
  for (auto& [source, of] : errors) {
    std::sort(of.begin(), of.end());
    file.data.push_back({source, static_cast<int64_t>(of.size()), four_digits(of[of.size() / 2])});
  }
  return file;
}

}  // namespace shardsim
