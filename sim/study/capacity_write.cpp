#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "sim/base/quantity.h"
#include "sim/report/text.h"
#include "sim/study/capacity.h"

namespace shardsim {

namespace {

using Json = nlohmann::ordered_json;

enum class Asked : uint8_t { cluster, micro_batch, seq_len };
constexpr std::string_view kNames[] = {"cluster", "micro_batch", "seq_len"};

const CapacityAnswer& answer_of(const StrategyCapacity& s, Asked asked) {
  switch (asked) {
    case Asked::cluster: return s.cluster;
    case Asked::micro_batch: return s.micro_batch;
    case Asked::seq_len: break;
  }
  return s.seq_len;
}

std::string size_text(const ClusterSize& c) {
  if (c.nodes > 1) return fmt::format("{} nodes, {} GPUs", grouped(c.nodes), grouped(c.gpus()));
  return c.gpus() == 1 ? "1 GPU" : fmt::format("{} GPUs", c.gpus());
}

std::string asked_text(const CapacityProbe& p, Asked asked) {
  switch (asked) {
    case Asked::cluster: return size_text(p.cluster);
    case Asked::micro_batch: return grouped(p.micro_batch);
    case Asked::seq_len: break;
  }
  return grouped(p.seq_len);
}

// "6: 1.20 GiB missing". A run of the allocator ends at the first block that it does not get.
std::string beside(const CapacityReport& report, const CapacityAnswer& a, Asked asked) {
  if (!a.next) return a.limit.empty() ? "" : "up to " + a.limit;
  const SweepRow& row = a.next->row;
  const std::string why =
      row.error.empty()
          ? fmt::format("{}{} missing",
                        report.scenario.options.memory == MemoryLevel::live ? "" : "at least ",
                        format_bytes(-row.headroom_bytes))
          : row.error;
  return fmt::format("{}: {}{}", asked_text(*a.next, asked), why,
                     a.limit.empty() ? "" : fmt::format(", up to {}", a.limit));
}

std::string seconds(double s) { return duration(Time{static_cast<int64_t>(s * 1e12)}); }

std::string table_of(const CapacityReport& report, Asked asked, std::string_view head) {
  std::vector<std::vector<std::string>> rows{
      {"strategy", std::string(head), "peak memory", "left", "step", "tokens/s", "does not fit"}};
  for (const StrategyCapacity& s : report.strategies) {
    if (!s.impossible.empty()) continue;
    const CapacityAnswer& a = answer_of(s, asked);
    if (!a.answer) {
      rows.push_back({s.name, "none", "-", "-", "-", "-", beside(report, a, asked)});
      continue;
    }
    const SweepRow& r = a.answer->row;
    rows.push_back({s.name, asked_text(*a.answer, asked), format_bytes(r.peak_bytes),
                    format_bytes(r.headroom_bytes), seconds(r.step_time_s),
                    grouped(static_cast<int64_t>(r.tokens_per_s)), beside(report, a, asked)});
  }
  return aligned(rows, "lrrrrrl");
}

Json probe_json(const CapacityProbe& p) {
  Json j;
  j["nodes"] = p.cluster.nodes;
  j["gpus"] = p.cluster.gpus();
  j["micro_batch"] = p.micro_batch;
  j["seq_len"] = p.seq_len > 0 ? Json(p.seq_len) : Json();
  j["error"] = p.row.error.empty() ? Json() : Json(p.row.error);
  if (!p.row.error.empty()) return j;
  const bool ended = p.row.step_time_s > 0;
  j["fits"] = p.row.fits;
  j["peak_bytes"] = p.row.peak_bytes;
  j["headroom_bytes"] = p.row.headroom_bytes;
  j["step_time_s"] = ended ? Json(p.row.step_time_s) : Json();
  j["tokens_per_s"] = ended ? Json(p.row.tokens_per_s) : Json();
  return j;
}

Json answer_json(const CapacityAnswer& a) {
  Json j;
  j["answer"] = a.answer ? probe_json(*a.answer) : Json();
  j["does_not_fit"] = a.next ? probe_json(*a.next) : Json();
  j["limit"] = a.limit.empty() ? Json() : Json(a.limit);
  j["simulations"] = a.played;
  return j;
}

}  // namespace

std::string capacity_table(const CapacityReport& report) {
  const Scenario& s = report.scenario;
  const ClusterSize own{s.cluster.nodes, s.cluster.gpus_per_node};
  const std::string batch = fmt::format("micro-batch {}", grouped(s.training.micro_batch));
  const std::string tokens =
      s.training.seq_len > 0 ? fmt::format("sequences of {}", grouped(s.training.seq_len)) : "rows";
  Lines out;
  out.add("{}: {} on {} ({}), {} for tensors on each{}", s.name, s.model.name, s.cluster.gpu.name,
          s.cluster.name, format_bytes(s.cluster.gpu.memory_bytes - s.cluster.gpu.context_bytes),
          report.leave > 0
              ? fmt::format(", of which {} are not used (--leave)", format_bytes(report.leave))
              : "");
  out.add("  {}", s.options.memory == MemoryLevel::live
                      ? "memory of live tensors; what the allocator adds is in options: {memory: "
                        "blocks} alone"
                      : "memory as the caching allocator reserves it");
  out.add("");
  out.add("smallest cluster: {}, {}", batch, tokens);
  out.text(table_of(report, Asked::cluster, "cluster"));
  out.add("");
  out.add("largest micro-batch: {}, {}", size_text(own), tokens);
  out.text(table_of(report, Asked::micro_batch, "micro-batch"));
  if (s.training.seq_len > 0) {
    out.add("");
    out.add("longest sequence, in steps of {}: {}, {}", grouped(report.seq_step), size_text(own),
            batch);
    out.text(table_of(report, Asked::seq_len, "sequence"));
  }
  std::vector<std::vector<std::string>> changed, impossible;
  for (const StrategyCapacity& c : report.strategies) {
    if (!c.impossible.empty())
      impossible.push_back({c.name, c.impossible});
    else if (!c.changes.empty())
      changed.push_back({c.name, fmt::format("{}", fmt::join(c.changes, "; "))});
  }
  if (!changed.empty()) {
    out.add("");
    out.add("what the scenario's keys become");
    out.text(aligned(changed, "ll"));
  }
  if (!impossible.empty()) {
    out.add("");
    out.add("not possible");
    out.text(aligned(impossible, "ll"));
  }
  return out.take();
}

std::string capacity_json(const CapacityReport& report) {
  const Scenario& s = report.scenario;
  Json j;
  j["schema_version"] = 1;
  j["name"] = s.name;
  j["model"] = s.model.name;
  j["gpu"] = s.cluster.gpu.name;
  j["nodes"] = s.cluster.nodes;
  j["gpus"] = s.cluster.world();
  j["memory"] = s.options.memory == MemoryLevel::live ? "live" : "blocks";
  j["capacity_bytes"] = s.cluster.gpu.memory_bytes - s.cluster.gpu.context_bytes;
  j["leave_bytes"] = report.leave;
  j["seq_step"] = report.seq_step;
  j["strategies"] = Json::array();
  for (const StrategyCapacity& c : report.strategies) {
    Json one;
    one["strategy"] = c.name;
    one["impossible"] = c.impossible.empty() ? Json() : Json(c.impossible);
    one["changes"] = c.changes;
    if (c.impossible.empty())
      for (const Asked asked : {Asked::cluster, Asked::micro_batch, Asked::seq_len})
        one[std::string(kNames[static_cast<size_t>(asked)])] = answer_json(answer_of(c, asked));
    j["strategies"].push_back(std::move(one));
  }
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string capacity_csv(const CapacityReport& report) {
  std::string out =
      "strategy,question,nodes,gpus,micro_batch,seq_len,peak_bytes,headroom_bytes,step_time_s,"
      "tokens_per_s,does_not_fit,missing_bytes,limit,error\n";
  for (const StrategyCapacity& c : report.strategies) {
    for (const Asked asked : {Asked::cluster, Asked::micro_batch, Asked::seq_len}) {
      std::vector<std::string> line{c.name, std::string(kNames[static_cast<size_t>(asked)])};
      const CapacityAnswer& a = answer_of(c, asked);
      if (a.answer) {
        const CapacityProbe& p = *a.answer;
        for (const int64_t v : {p.cluster.nodes, p.cluster.gpus(), p.micro_batch, p.seq_len,
                                p.row.peak_bytes, p.row.headroom_bytes})
          line.push_back(std::to_string(v));
        for (const double v : {p.row.step_time_s, p.row.tokens_per_s})
          line.push_back(fmt::format("{}", v));
      } else {
        line.insert(line.end(), 8, "");
      }
      const bool memory = a.next && a.next->row.error.empty();
      line.push_back(!a.next                       ? ""
                     : asked == Asked::cluster     ? std::to_string(a.next->cluster.gpus())
                     : asked == Asked::micro_batch ? std::to_string(a.next->micro_batch)
                                                   : std::to_string(a.next->seq_len));
      line.push_back(memory ? std::to_string(-a.next->row.headroom_bytes) : "");
      line.push_back(csv_field(a.limit));
      line.push_back(csv_field(!c.impossible.empty() ? c.impossible
                               : a.next              ? a.next->row.error
                                                     : ""));
      out += fmt::format("{}\n", fmt::join(line, ","));
    }
  }
  return out;
}

}  // namespace shardsim
