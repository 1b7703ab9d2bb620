#include "sim/report/html/page_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "sim/report/html/group_times.h"
#include "sim/report/html/memory_curve.h"
#include "sim/report/html/pack.h"
#include "sim/report/html/page.h"

namespace shardsim {
namespace {

using Json = nlohmann::ordered_json;

int64_t ns(Time t) { return (t.ps + 500) / 1000; }
double seconds(Time t) { return static_cast<double>(t.ps) / 1e12; }

// What the page calls a launch: a product by its sizes, a collective by its type.
std::string launch_name(const Work& w) {
  if (w.kind == WorkKind::Gemm)
    return fmt::format("{} {} \u00d7 {} \u00d7 {}{} {}", w.name, w.m, w.n, w.k,
                       w.batch > 1 ? fmt::format(", {} of them", w.batch) : "", name_of(w.dtype));
  if (is_collective(w.kind)) return fmt::format("{} {}", name_of(w.kind), name_of(w.dtype));
  return *w.name != '\0' ? w.name : std::string(name_of(w.kind));
}

class Names {
 public:
  uint64_t of(const std::string& name) {
    const auto [at, fresh] = number_.try_emplace(name, list_.size());
    if (fresh) list_.push_back(name);
    return at->second;
  }
  const std::vector<std::string>& list() const { return list_; }

 private:
  std::unordered_map<std::string, uint64_t> number_;
  std::vector<std::string> list_;
};

struct Span {
  uint32_t launch = 0, cls = 0;
};

class RunPage {
 public:
  RunPage(const StepReport& report, const Schedule& schedule, const Trace& trace,
          const RunPageOptions& options)
      : report_(report), schedule_(schedule), trace_(trace), options_(options) {}

  std::string write() {
    json_["report"] = Json::parse(report_json(report_));
    json_["report"].erase("exposed");
    facts();
    steps();
    spans();
    host_works();
    exposed();
    memory();
    groups();
    json_["names"] = names_.list();
    return html_page("run", report_.run.name + " - shardsim run",
                     json_.dump(-1, ' ', false, Json::error_handler_t::replace), packer_.text());
  }

 private:
  void facts() {
    json_["facts"] = {
        {"tokens_per_step", report_.run.tokens_per_step},
        {"peak_tflops", report_.run.peak_tflops},
        {"compute_dtype", report_.run.compute_dtype},
        {"context_bytes", report_.memory.context},
        {"hardware_flops", report_.model.hardware_flops_per_token > report_.model.flops_per_token}};
    json_["kinds"] = Json::array();
    for (int k = 0; k <= static_cast<int>(WorkKind::Memset); ++k)
      json_["kinds"].push_back(name_of(static_cast<WorkKind>(k)));
    json_["categories"] = Json::array();
    for (int c = 0; c < kCategories; ++c)
      json_["categories"].push_back(name_of(static_cast<Category>(c)));
    json_["causes"] = Json::array();
    for (int c = 0; c <= static_cast<int>(Cause::end_of_step); ++c)
      json_["causes"].push_back(name_of(static_cast<Cause>(c)));
    json_["communicators"] = report_.communicator_names;
  }

  // Windows of the steps on the device; of the steady one its phases.
  void steps() {
    Json list = Json::array();
    if (!trace_.out_of_memory) {
      const int n = steps_played(schedule_, trace_);
      for (int k = 0; k < n; ++k) {
        Timeline t;
        t.build(schedule_, trace_, k);
        windows_.push_back(t.times());
        intervals_.emplace_back(t.exposed().begin(), t.exposed().end());
      }
    }
    first_kept_step();
    for (size_t k = kept_; k < windows_.size(); ++k)
      list.push_back({ns(windows_[k].start), ns(windows_[k].end)});
    json_["steps"] = list;
    json_["first_step"] = kept_;
    json_["phases"] = Json::array();
    if (!windows_.empty())
      for (const PhaseWindow& w : phase_windows(schedule_, trace_, windows_.back()))
        json_["phases"].push_back({name_of(w.phase), ns(w.start), ns(w.end)});
  }

  void first_kept_step() {
    const size_t all = trace_.end.size();
    if (all <= options_.most_spans || windows_.empty()) return;
    while (kept_ + 1 < windows_.size() && all - windows_[kept_].first_launch > options_.most_spans)
      ++kept_;
    first_launch_ = windows_[kept_].first_launch;
    first_worked_ = windows_[kept_].first_worked;
  }

  // The kept launches of each stream, by start.
  std::vector<std::vector<Span>> pick() {
    std::vector<std::vector<Span>> by_stream(std::max<size_t>(1, schedule_.streams.size()));
    std::vector<uint32_t> kept;
    const auto all = static_cast<uint32_t>(trace_.end.size());
    for (uint32_t l = first_launch_; l < all; ++l) kept.push_back(l);
    std::vector<bool> drawn(all, true);
    size_t shorter = 0;
    Time longest;
    if (kept.size() > options_.most_spans) {
      const auto length = [&](uint32_t l) { return trace_.end[l] - trace_.start[l]; };
      std::stable_sort(kept.begin(), kept.end(),
                       [&](uint32_t a, uint32_t b) { return length(a) > length(b); });
      for (size_t i = options_.most_spans; i < kept.size(); ++i) drawn[kept[i]] = false;
      shorter = kept.size() - options_.most_spans;
      longest = length(kept[options_.most_spans]);
    }
    json_["left_out"] = {{"steps", kept_},
                         {"launches", first_launch_},
                         {"short", shorter},
                         {"longest_short_ns", ns(longest)}};
    uint32_t launch = 0;
    schedule_.for_each([&](const Instr& in, const Segment& segment) {
      if (in.kind != Kind::Launch) return;
      const uint32_t l = launch++;
      if (l < first_launch_ || l >= all || !drawn[l]) return;
      if (by_stream.size() <= in.stream) by_stream.resize(size_t{in.stream} + 1);
      const Work& w = schedule_.works[in.a];
      by_stream[in.stream].push_back(
          {l, class_of(in.a, (w.group.valid() ? w.group : segment.group).v)});
    });
    for (std::vector<Span>& s : by_stream)
      std::stable_sort(s.begin(), s.end(), [&](const Span& a, const Span& b) {
        return trace_.start[a.launch] < trace_.start[b.launch];
      });
    return by_stream;
  }

  // Launches that read alike are one class.
  uint32_t class_of(uint32_t work, uint32_t group) {
    const auto [known, fresh] =
        class_of_work_.try_emplace(uint64_t{work} << 32 | group, static_cast<uint32_t>(0));
    if (!fresh) return known->second;
    const Work& w = schedule_.works[work];
    const uint64_t g = group < report_.groups.size() ? group + uint64_t{1} : 0;
    const uint64_t comm = w.comm.v < schedule_.comms.size() ? w.comm.v + uint64_t{1} : 0;
    const Class c{
        static_cast<uint64_t>(w.kind),
        names_.of(launch_name(w)),
        g,
        comm,
        static_cast<uint64_t>(w.bytes),
        static_cast<uint64_t>(w.flops),
        uint64_t{w.recomputed ? 1U : 0U} | (w.kernel == KernelClass::attention ? 2U : 0U)};
    const auto [at, is_new] = classes_.try_emplace(c, static_cast<uint32_t>(in_order_.size()));
    if (is_new) in_order_.push_back(c);
    return known->second = at->second;
  }

  void spans() {
    const std::vector<std::vector<Span>> by_stream = pick();
    json_["streams"] = Json::array();
    for (size_t s = 0; s < by_stream.size(); ++s)
      json_["streams"].push_back(s < schedule_.streams.size() ? schedule_.streams[s]
                                                              : fmt::format("stream {}", s));
    packer_.add(in_order_.size());
    for (size_t column = 0; column < std::tuple_size_v<Class>; ++column)
      for (const Class& c : in_order_) packer_.add(c[column]);
    for (const std::vector<Span>& spans : by_stream) {
      packer_.add(spans.size());
      int64_t end = 0;
      for (const Span& s : spans) {
        packer_.add_signed(ns(trace_.start[s.launch]) - end);
        end = ns(trace_.end[s.launch]);
      }
      for (const Span& s : spans)
        packer_.add(static_cast<uint64_t>(ns(trace_.end[s.launch]) - ns(trace_.start[s.launch])));
      for (const Span& s : spans) packer_.add(s.cls);
      for (const Span& s : spans)
        packer_.add_signed(ns(trace_.start[s.launch]) - ns(trace_.issued[s.launch]));
      for (const Span& s : spans)
        packer_.add(trace_.slowed.empty()
                        ? 0
                        : static_cast<uint64_t>(std::max<int64_t>(0, ns(trace_.slowed[s.launch]))));
    }
  }

  void host_works() {
    std::vector<uint64_t> name;
    std::vector<Trace::Worked> when;
    uint32_t worked = 0;
    schedule_.for_each([&](const Instr& in, const Segment&) {
      if (in.kind != Kind::HostWork) return;
      const uint32_t k = worked++;
      if (k < first_worked_ || k >= trace_.worked.size()) return;
      if (trace_.worked[k].end <= trace_.worked[k].start) return;
      name.push_back(names_.of(schedule_.host_works[in.a].name));
      when.push_back(trace_.worked[k]);
    });
    packer_.add(name.size());
    int64_t end = 0;
    for (size_t i = 0; i < name.size(); ++i) {
      packer_.add_signed(ns(when[i].start) - end);
      packer_.add_signed(ns(when[i].end) - ns(when[i].start));
      packer_.add(name[i]);
      end = ns(when[i].end);
    }
  }

  // Of the steady step with what they wait for, of the others the intervals alone.
  void exposed() {
    for (size_t k = kept_; k < windows_.size(); ++k) {
      const bool steady = k + 1 == windows_.size();
      int64_t end = 0;
      const auto interval = [&](Time from, Time to, uint64_t cause, uint64_t waiting_on) {
        packer_.add_signed(ns(from) - end);
        packer_.add_signed(ns(to) - ns(from));
        packer_.add(cause);
        packer_.add(waiting_on);
        end = ns(to);
      };
      if (steady) {
        packer_.add(report_.exposed.size());
        for (const Exposed& e : report_.exposed)
          interval(windows_[k].start + e.start, windows_[k].start + e.start + e.duration,
                   static_cast<uint64_t>(e.cause) + 1, names_.of(e.waiting_on));
      } else {
        packer_.add(intervals_[k].size());
        for (const Interval& i : intervals_[k]) interval(i.start, i.end, 0, 0);
      }
    }
  }

  // Points from the first step that is kept on; what was live before it is the first.
  void memory() {
    const MemoryCurve curve = memory_curve(schedule_, trace_, options_.launch, options_.reserved);
    const std::vector<bool> keep = thinned(curve);
    std::array<int64_t, kCategories> pending{};
    Packer host, device, changes, reserved;
    size_t points = 0;
    int64_t host_at = 0, device_at = 0;
    Bytes held = 0;
    for (size_t i = 0; i < keep.size(); ++i) {
      for (uint32_t c = curve.first[i]; c < curve.first[i + 1]; ++c)
        pending[static_cast<size_t>(curve.changes[c].category)] += curve.changes[c].bytes / kBlock;
      if (!keep[i]) continue;
      ++points;
      host.add_signed(ns(curve.host[i]) - std::exchange(host_at, ns(curve.host[i])));
      device.add_signed(ns(curve.device[i]) - std::exchange(device_at, ns(curve.device[i])));
      changes.add(static_cast<uint64_t>(
          std::count_if(pending.begin(), pending.end(), [](int64_t n) { return n != 0; })));
      for (size_t c = 0; c < pending.size(); ++c) {
        if (pending[c] == 0) continue;
        changes.add(c);
        changes.add_signed(pending[c]);
      }
      pending = {};
      if (!curve.reserved.empty())
        reserved.add_signed((curve.reserved[i] - std::exchange(held, curve.reserved[i])) / kBlock);
    }
    packer_.add(points);
    for (const Packer* column : {&host, &device, &changes}) packer_.append(*column);
    packer_.add(curve.reserved.empty() ? 0 : 1);
    packer_.append(reserved);
    json_["left_out"]["memory_points"] = static_cast<int64_t>(keep.size() - points) - before_;
  }

  std::vector<bool> thinned(const MemoryCurve& curve) {
    const size_t n = curve.host.size();
    std::vector<bool> keep(n, true);
    size_t first = 0;
    if (kept_ > 0)
      while (first + 1 < n && curve.device[first + 1] < windows_[kept_].start)
        keep[first++] = false;
    before_ = static_cast<int64_t>(first);
    const size_t most = 2 * options_.most_spans;
    if (n - first <= most) return keep;
    std::vector<int64_t> live(n);
    int64_t now = 0;
    for (size_t i = 0; i < n; ++i) {
      for (uint32_t c = curve.first[i]; c < curve.first[i + 1]; ++c) now += curve.changes[c].bytes;
      live[i] = now;
    }
    const size_t together = (n - first + most - 1) / most;
    for (size_t i = first; i < n; i += together) {
      const size_t end = std::min(n, i + together);
      size_t highest = i;
      for (size_t k = i; k < end; ++k)
        if (live[k] > live[highest]) highest = k;
      for (size_t k = i; k < end; ++k) keep[k] = k == highest || k + 1 == n;
    }
    return keep;
  }

  void groups() {
    Json labels = Json::array(), rows = Json::array();
    for (uint32_t g = 0; g < report_.groups.size(); ++g)
      labels.push_back(group_label(report_.groups, GroupId{g}));
    json_["groups"] = labels;
    if (!windows_.empty())
      for (const GroupTimes& t :
           group_times(schedule_, trace_, windows_.back().step, report_.groups.size()))
        rows.push_back({{"forward_s", seconds(t.compute[0])},
                        {"backward_s", seconds(t.compute[1])},
                        {"optimizer_s", seconds(t.compute[2])},
                        {"all_gather_s", seconds(t.all_gather)},
                        {"reduce_s", seconds(t.reduce)},
                        {"exposed_s", seconds(t.exposed)},
                        {"gathers", t.gathers},
                        {"reductions", t.reductions},
                        {"gathered_bytes", t.gathered},
                        {"reduced_bytes", t.reduced}});
    json_["group_times"] = rows;
  }

  using Class = std::array<uint64_t, 7>;

  const StepReport& report_;
  const Schedule& schedule_;
  const Trace& trace_;
  const RunPageOptions& options_;
  Json json_;
  Packer packer_;
  Names names_;
  std::vector<StepTimes> windows_;
  std::vector<std::vector<Interval>> intervals_;  // exposed, by step
  size_t kept_ = 0;                               // first step that is in the page
  uint32_t first_launch_ = 0, first_worked_ = 0;
  int64_t before_ = 0;  // points of memory in front of it
  std::unordered_map<uint64_t, uint32_t> class_of_work_;
  std::map<Class, uint32_t> classes_;
  std::vector<Class> in_order_;
};

}  // namespace

std::string run_page(const StepReport& report, const Schedule& schedule, const Trace& trace,
                     const RunPageOptions& options) {
  return RunPage(report, schedule, trace, options).write();
}

}  // namespace shardsim
