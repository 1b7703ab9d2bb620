#include "sim/config/nccl_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <set>
#include <sstream>

#include "sim/config/reader.h"

namespace shardsim {
namespace {

constexpr int64_t kLargestSweep = int64_t{16} << 20;
constexpr const char* kCollectives[] = {"all_gather", "all_reduce", "reduce_scatter", "broadcast",
                                        "reduce"};
constexpr double kHalfAPercent = 0.005;
constexpr int64_t kMostOfProcess = 1024;

using Words = std::vector<std::string>;

Words words_of(std::string_view line) {
  Words words;
  std::istringstream in{std::string(line)};
  for (std::string w; in >> w;) words.push_back(w);
  return words;
}

bool read(const std::string& word, double& out) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), out);
  return error == std::errc{} && end == word.data() + word.size() && std::isfinite(out);
}

bool all_digits(const std::string& word) {
  return !word.empty() &&
         std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "/opt/nccl-tests/build/all_gather_perf_mpi" is all_gather; empty: none that is priced.
std::string collective_in(std::string_view program) {
  const size_t slash = program.find_last_of('/');
  if (slash != std::string_view::npos) program.remove_prefix(slash + 1);
  for (const char* name : kCollectives)
    if (program.substr(0, program.find("_perf")) == name) return name;
  return "";
}

// What the numbers of one line say the collective is.
std::string collective_by(std::string_view redop, std::string_view root, double algorithm_bw,
                          double bus_bw, int64_t ranks) {
  const bool reduces = redop != "none", rooted = root != "-1";
  if (rooted) return reduces ? "reduce" : "broadcast";
  if (!reduces) return "all_gather";
  // With both so rounded that nothing shows, an all-reduce: scatters of few bytes are rare.
  if (algorithm_bw <= 0 || ranks < 2) return "all_reduce";
  const double n = static_cast<double>(ranks);
  return std::abs(bus_bw / algorithm_bw - (n - 1) / n) < .25 + kHalfAPercent ? "reduce_scatter"
                                                                             : "all_reduce";
}

class TextReader {
 public:
  TextReader(std::string_view text, std::string file) : text_(text), file_(std::move(file)) {
    table_.file = file_;
  }

  NcclTable read_all() {
    size_t at = 0;
    while (at < text_.size()) {
      const size_t end = std::min(text_.find('\n', at), text_.size());
      ++line_;
      read_line(text_.substr(at, end - at));
      at = end + 1;
    }
    finish();
    return std::move(table_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const {
    throw Error(what, {file_, line_, 0}, hint);
  }

  void read_line(std::string_view line) {
    const Words w = words_of(line);
    if (w.empty()) return;
    if (w[0] == "#") {
      read_heading(w);
      return;
    }
    // NCCL's log and a launcher's words stand between.
    if (!all_digits(w[0]) || w.size() < 2 || !all_digits(w[1])) return;
    read_numbers(w);
  }

  void read_heading(const Words& w) {
    if (w.size() > 4 && w[1] == "Collective" && w[2] == "test" && w[3] == "starting:") {
      finish();
      sweep_.collective = collective_in(w[4]);
      if (sweep_.collective.empty())
        fail(fmt::format("{} is not a collective that is priced", w[4]),
             "known are all_gather, all_reduce, reduce_scatter, broadcast and reduce");
    } else if (w.size() > 2 && w[1] == "Rank") {
      // A sweep without its first line begins with its ranks.
      if (!sweep_.points.empty()) finish();
      ++sweep_.ranks;
      for (size_t i = 0; i + 1 < w.size(); ++i)
        if (w[i] == "on") hosts_.insert(w[i + 1]);
    }
  }

  // size count type redop root, then out of place and in place {time algbw busbw #wrong}; older
  // versions have no root, and none has redop in a gather's.
  void read_numbers(const Words& w) {
    if (sweep_.ranks == 0)
      fail("numbers before any line '# Rank 0 ...'",
           "give all that nccl-tests prints, from its first line on");
    size_t at = 2;
    if (at < w.size()) ++at;  // the type
    std::string redop = "none", root = "-1";
    double number = 0;
    if (at < w.size() && !shardsim::read(w[at], number)) redop = w[at++];
    // Times come by four, a timestamp is two words: one more is the root's.
    if ((w.size() - at) % 2 == 1) root = w[at++];
    if (w.size() < at + 3)
      fail(fmt::format("expected size, count, type, redop, root and times, got {} columns",
                       w.size()));
    double time = 0, algorithm_bw = 0, bus_bw = 0;
    if (!shardsim::read(w[at], time) || !shardsim::read(w[at + 1], algorithm_bw) ||
        !shardsim::read(w[at + 2], bus_bw))
      fail(fmt::format("expected time, algbw and busbw, got '{} {} {}'", w[at], w[at + 1],
                       w[at + 2]));
    double bytes = 0;
    if (!shardsim::read(w[0], bytes) || bytes > 1e18)
      fail("expected a size in bytes, got '" + w[0] + "'");
    if (bytes == 0) return;
    if (time <= 0) fail("expected a time above 0, got '" + w[at] + "'");
    if (sweep_.collective.empty())
      sweep_.collective = collective_by(redop, root, algorithm_bw, bus_bw, sweep_.ranks);
    sweep_.points.push_back({static_cast<Bytes>(bytes), time});
  }

  void finish() {
    if (!sweep_.points.empty()) {
      sweep_.nodes = static_cast<int64_t>(hosts_.size());
      table_.sweeps.push_back(std::move(sweep_));
    }
    sweep_ = {};
    hosts_.clear();
  }

  std::string_view text_;
  std::string file_;
  int line_ = 0;
  NcclTable table_;
  NcclSweep sweep_;
  std::set<std::string> hosts_;
};

NcclTable read_json(std::string_view text, const std::string& file) {
  const Value root(std::make_shared<const Document>(parse_json(text, file)));
  const Map map(root, Map::any_key);
  NcclSweep sweep;
  if (const std::optional<Value> args = map.find("args")) {
    const std::vector<Value> list = args->list("words of a command line");
    if (!list.empty()) sweep.collective = collective_in(list[0].word());
  }
  const Value config = map.at("config", "what nccl-tests writes with -J");
  const Map run(config, Map::any_key);
  const std::vector<Value> devices =
      run.at("devices", "the processes of the run").list("processes");
  // It lists the first GPU of each process alone; a process drives -t threads of -g GPUs.
  int64_t per_process = 1;
  for (std::string_view key : {"nthreads", "ngpus"})
    if (const std::optional<Value> v = run.find(key)) per_process *= v->whole(1, kMostOfProcess);
  std::set<std::string> hosts;
  for (const Value& d : devices) {
    const Map device(d, Map::any_key);
    if (const std::optional<Value> v = device.find("hostname"))
      hosts.insert(std::string(v->word()));
  }
  sweep.ranks = static_cast<int64_t>(devices.size()) * per_process;
  sweep.nodes = static_cast<int64_t>(hosts.size());
  for (const Value& r : map.at("results").list("results")) {
    const Map row(r, Map::any_key);
    const Bytes bytes = row.at("size").whole(0, int64_t{1} << 60);
    std::optional<Value> body = row.find("out_of_place");
    if (!body || body->is_null()) body = row.find("in_place");
    if (!body || body->is_null()) r.fail("expected out_of_place or in_place");
    const Map times(*body, Map::any_key);
    // -C 1 reports what the CPU takes.
    const double us = times.at("time", "in microseconds; cpu_time is not priced").decimal(0, 1e12);
    if (bytes == 0) continue;
    if (us <= 0) body->fail("expected a time above 0");
    if (sweep.collective.empty()) {
      const std::string redop(row.at("redop").word());
      std::string root_rank(row.at("root").word());
      root_rank.erase(0, root_rank.find_first_not_of(' '));
      sweep.collective = collective_by(redop, root_rank, times.at("alg_bw").decimal(0, 1e12),
                                       times.at("bus_bw").decimal(0, 1e12), sweep.ranks);
    }
    sweep.points.push_back({bytes, us});
  }
  NcclTable table;
  table.file = file;
  if (!sweep.points.empty()) table.sweeps.push_back(std::move(sweep));
  return table;
}

}  // namespace

NcclTable parse_nccl_tests(std::string_view text, const std::string& file) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  NcclTable table = first != std::string_view::npos && text[first] == '{'
                        ? read_json(text, file)
                        : TextReader(text, file).read_all();
  if (table.sweeps.empty())
    throw Error("there are no results of nccl-tests", {file, 1, 0},
                "what all_gather_perf and its siblings print, or write with -J FILE");
  for (NcclSweep& s : table.sweeps) {
    std::stable_sort(s.points.begin(), s.points.end(),
                     [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
    // Sizes that rounding made equal: the last one stands.
    std::vector<NcclSweep::Point> distinct;
    for (const NcclSweep::Point& p : s.points) {
      if (!distinct.empty() && distinct.back().bytes == p.bytes) distinct.pop_back();
      distinct.push_back(p);
    }
    s.points = std::move(distinct);
  }
  return table;
}

NcclTable load_nccl_tests(const std::string& path) {
  return parse_nccl_tests(read_text_file(path, kLargestSweep), path);
}

}  // namespace shardsim
