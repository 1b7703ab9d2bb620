#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "sim/base/quantity.h"
#include "sim/report/step_report.h"
#include "sim/report/text.h"

namespace shardsim {
namespace {

// The cause and work that hold most of the exposed time; works that differ by a layer's number only
// are one, and a pattern with one name keeps it.
std::string main_reason(const std::vector<Exposed>& exposed) {
  struct Part {
    Time time;
    std::string name;
  };
  std::map<std::pair<std::string, Cause>, Part> parts;
  Time all;
  for (const Exposed& e : exposed) {
    const std::string pattern = folded_name(e.waiting_on);
    Part& part = parts[{pattern, e.cause}];
    part.name = part.time.ps == 0 || part.name == e.waiting_on ? e.waiting_on : pattern;
    part.time += e.duration;
    all += e.duration;
  }
  const auto most = std::max_element(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
    return a.second.time < b.second.time;
  });
  if (most == parts.end()) return "";
  const auto& [time, name] = most->second;
  return fmt::format("{} ({}) waits on {}, cause {}",
                     2 * time.ps > all.ps ? "most of it" : "the largest part", duration(time), name,
                     name_of(most->first.second));
}

// What most of the interference is due to; layers as one.
std::string main_interference(const StepReport& r) {
  std::map<std::string, Time> parts;
  for (const Interference& i : r.interference)
    parts[folded_name(interference_name(r, i))] += i.time;
  const auto most = std::max_element(
      parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return fmt::format("{} ({}) by {}",
                     2 * most->second.ps > r.steady.slowed.ps ? "most of it" : "the largest part",
                     duration(most->second), most->first);
}

void verdict(Lines& out, const MemoryReport& m) {
  const Category largest = m.largest();
  if (m.failure) {
    // The run ends with the first allocation that finds no room: more may be asked for behind it.
    out.add("  memory         OUT OF MEMORY, at least {} missing of {}; the largest part is {}, {}",
            format_bytes(m.failure->missing), format_bytes(m.capacity), name_of(largest),
            format_bytes(m.by_category[static_cast<size_t>(largest)]));
    out.add("                 {}", m.failure->message);
    return;
  }
  if (m.peak_reserved)
    out.add("  memory         allocated {}, active {}, reserved {} at their peaks",
            format_bytes(m.peak_allocated), format_bytes(m.peak_active.value_or(0)),
            format_bytes(*m.peak_reserved));
  const Bytes peak = m.peak_reserved.value_or(m.peak_allocated);
  if (m.oom())
    out.add("  peak memory    {}: OUT OF MEMORY, {} missing of {}; the largest part is {}, {}",
            format_bytes(peak), format_bytes(-m.headroom()), format_bytes(m.capacity),
            name_of(largest), format_bytes(m.by_category[static_cast<size_t>(largest)]));
  else
    out.add("  peak memory    {} of {}: fits, {} left", format_bytes(peak),
            format_bytes(m.capacity), format_bytes(m.headroom()));
}

// "90,912", "353.2", "4.42": three digits or all before the point.
std::string figure(double x) {
  if (x < 10) return fmt::format("{:.2f}", x);
  return x < 1000 ? fmt::format("{:.1f}", x) : grouped(std::llround(x));
}

void planned(Lines& out, const Planning& p) {
  out.add("  planned        {} tokens: {} steps, {} hours ({} days), {} GPU-hours",
          grouped(p.tokens), grouped(p.steps), figure(p.hours), figure(p.days()),
          figure(p.gpu_hours));
  if (const std::optional<double> cost = p.cost())
    out.add("                 which cost {} at {:g} each", figure(*cost), p.price);
}

void times(Lines& out, const StepReport& r) {
  const StepTimes& s = r.steady;
  out.add("  step time      {}{}", duration(s.length()),
          s.step == r.first.step ? std::string()
                                 : fmt::format("   (first step {})", duration(r.first.length())));
  out.add("  tokens/s/GPU   {}", grouped(std::llround(r.tokens_per_s_per_gpu())));
  if (r.planning) planned(out, *r.planning);
  if (r.model.flops_per_token > 0 && r.run.peak_tflops > 0) {
    out.add("  MFU            {:.1f} % of {:g} {} TFLOPS, FLOPs = {}", 100 * r.mfu(),
            r.run.peak_tflops, r.run.compute_dtype, r.model.mfu_definition);
    if (r.model.hardware_flops_per_token > r.model.flops_per_token)
      out.add("  HFU            {:.1f} %, with recomputation", 100 * r.hfu());
  }
  out.add("  exposed comm   {:.1f} % of the step ({}), {:.1f} % of communication is hidden",
          percent(s.exposed_comm, s.length()), duration(s.exposed_comm),
          100 * s.overlap_fraction());
  const std::string why = main_reason(r.exposed);
  if (!why.empty()) out.add("                 {}", why);
  if (s.slowed.ps > 0)
    out.add("  interference   {:.1f} % of the step ({}) is what sharing adds to compute; {}",
            percent(s.slowed, s.length()), duration(s.slowed), main_interference(r));
  if (!r.priced_with.empty()) {
    constexpr size_t kWidth = 95;
    std::string line;
    const char* head = "priced with";
    for (const PricedWith& p : r.priced_with) {
      const std::string part =
          fmt::format("{} {}{}", p.what, p.value, p.assumed ? " (assumed)" : "");
      if (!line.empty() && line.size() + part.size() > kWidth) {
        out.add("  {:<15}{},", std::exchange(head, ""), line);
        line.clear();
      }
      line += (line.empty() ? "" : ", ") + part;
    }
    out.add("  {:<15}{}", head, line);
  }
  if (r.run.scale_tax > 1)
    out.add("  scale tax      {:.1f} % ({}) for {} ranks: stragglers and contention, as published",
            100 * (r.run.scale_tax - 1), duration(r.tax()), grouped(r.run.world));
  if (s.host_worked.ps > 0) {
    std::string what;
    for (const HostWorkRow& w : r.host_work)
      what += fmt::format("{}{} {}", what.empty() ? "" : ", ", w.name, duration(w.time));
    out.add("  host's work    {:.1f} % of the step: {}", percent(s.host_worked, s.length()), what);
  }
  if (s.host_bound.ps > 0)
    out.add("  host-bound     {:.1f} % of the step: nothing issued yet",
            100 * s.host_bound_fraction());
}

void headline(Lines& out, const StepReport& r) {
  const Cluster& c = r.run.cluster;
  out.add("{}: {}, {} on {} x {} ({}), {} tokens a GPU and step", r.run.name, r.model.name,
          r.run.strategy, r.run.world, c.gpu.name, c.name, grouped(r.run.tokens_per_step));
  out.add("");
  if (!r.memory.failure) times(out, r);
  verdict(out, r.memory);
}

void memory(Lines& out, const MemoryReport& m) {
  out.add("");
  if (m.failure)
    out.add("memory when it ran out, {}", m.peak_phase);
  else
    out.add("memory at the peak{}",
            m.peak_phase.empty() ? "" : fmt::format(" (before the mark {})", m.peak_phase));
  std::vector<int> order;
  for (int c = 0; c < kCategories; ++c)
    if (m.by_category[static_cast<size_t>(c)] > 0) order.push_back(c);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return m.by_category[static_cast<size_t>(a)] > m.by_category[static_cast<size_t>(b)];
  });
  for (const int c : order) {
    const Bytes n = m.by_category[static_cast<size_t>(c)];
    out.add("  {:<24}{:>12}  {:>5.1f} %", name_of(static_cast<Category>(c)), format_bytes(n),
            m.peak_allocated == 0
                ? 0.0
                : 100.0 * static_cast<double>(n) / static_cast<double>(m.peak_allocated));
  }
}

void memory_by_group(Lines& out, const StepReport& r) {
  constexpr size_t kShown = 5;
  // Groups smaller than a block, as stage 3's modules, count with it.
  if (r.memory.by_group.empty()) return;
  std::vector<std::string> names;
  std::vector<Bytes> by_group;
  std::map<std::string, size_t> blocks;
  bool folded = false;
  for (size_t g = 0; g < r.memory.by_group.size(); ++g) {
    const bool in_group = g < r.groups.size();
    const std::string block = in_group ? r.groups[g].block : "";
    const auto [at, first] = blocks.try_emplace(block, by_group.size());
    if (!block.empty() && !first) {
      by_group[at->second] += r.memory.by_group[g];
      names[at->second] = block;
      folded = true;
      continue;
    }
    names.push_back(in_group ? group_label(r.groups, GroupId{static_cast<uint32_t>(g)}) : "");
    by_group.push_back(r.memory.by_group[g]);
  }
  // Stage 3's states own no activations, its buckets and partitions cross the groups.
  names.back() =
      r.run.strategy == "zero3" ? "no group (activations, buckets, parts)" : "input and loss";
  std::vector<size_t> order;
  for (size_t g = 0; g < by_group.size(); ++g)
    if (by_group[g] > 0) order.push_back(g);
  if (order.empty()) return;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return by_group[a] > by_group[b]; });
  out.add("");
  if (order.size() > kShown)
    out.add("the same by {}, the {} largest of {}", folded ? "block" : "group", kShown,
            order.size());
  else
    out.add("the same by {}", folded ? "block" : "group");
  size_t width = 24;
  for (size_t i = 0; i < order.size() && i < kShown; ++i)
    width = std::max(width, names[order[i]].size());
  for (size_t i = 0; i < order.size() && i < kShown; ++i)
    out.add("  {:<{}}{:>12}", names[order[i]], width, format_bytes(by_group[order[i]]));
}

// Level blocks: what the allocator holds by phase, and the holes in it.
void blocks(Lines& out, const MemoryReport& m) {
  if (!m.peak_reserved) return;
  out.add("");
  out.add("peaks by phase, since the step began");
  out.add("  {:<28}{:>12}{:>12}{:>12}{:>12}", "before the mark", "allocated", "active", "reserved",
          "device");
  const int last = m.last_step();
  for (const MemoryRow& row : m.rows) {
    if (row.step != last || !row.reserved_peak) continue;
    out.add("  {:<28}{:>12}{:>12}{:>12}{:>12}", row.name, format_bytes(row.allocated_peak),
            format_bytes(row.active_peak.value_or(0)), format_bytes(*row.reserved_peak),
            format_bytes(*row.reserved_peak + m.context));
  }
  if (m.free_blocks.empty()) return;
  out.add("");
  out.add("largest free blocks when reserved reached its peak");
  out.add("  {:>12}  {:>12}  {}", "free", "of segment", "left by");
  for (const FreeBlockRow& b : m.free_blocks)
    out.add("  {:>12}  {:>12}  {}", format_bytes(b.size), format_bytes(b.segment_size), b.left_by);
}

// Evaluation, state dicts: what follows the last step.
void after_steps(Lines& out, const MemoryReport& m) {
  size_t i = m.rows.size();
  while (i > 0 && m.rows[i - 1].step < 0) --i;
  if (i == 0 || i == m.rows.size()) return;
  out.add("");
  out.add("after the steps");
  out.add("  {:<28}{:>12}{:>12}{:>12}{:>12}", "before the mark", "host time", "allocated",
          "its peak", "reserved");
  for (; i < m.rows.size(); ++i) {
    const MemoryRow& row = m.rows[i];
    out.add("  {:<28}{:>12}{:>12}{:>12}{:>12}", row.name, duration(row.host - m.rows[i - 1].host),
            format_bytes(row.allocated), format_bytes(row.allocated_peak),
            row.reserved_peak ? format_bytes(*row.reserved_peak) : "-");
  }
}

void exposed(Lines& out, const StepReport& r) {
  if (r.exposed.empty()) return;
  std::vector<Exposed> top = r.exposed;
  std::stable_sort(top.begin(), top.end(),
                   [](const Exposed& a, const Exposed& b) { return a.duration > b.duration; });
  constexpr size_t kShown = 10;
  out.add("");
  if (top.size() > kShown) {
    out.add("exposed communication, the {} longest of {}", kShown, top.size());
    top.resize(kShown);
  } else {
    out.add("exposed communication");
  }
  out.add("  {:>12}{:>12}  {:<13} {}", "from", "for", "cause", "waiting on");
  for (const Exposed& e : top)
    out.add("  {:>12}{:>12}  {:<13} {}", duration(e.start), duration(e.duration), name_of(e.cause),
            e.waiting_on);
}

std::string chosen(const CollectiveRow& c) {
  if (c.algorithm.empty()) return "";
  if (c.protocol.empty()) return c.algorithm;
  return fmt::format("{}/{}, {} {}", c.algorithm, c.protocol, c.ctas,
                     c.ctas == 1 ? "block" : "blocks");
}

void links(Lines& out, const LinkUse& use) {
  std::string text;
  for (const auto& [name, part] : {std::pair<const char*, double>{"NVLink", use.nvlink},
                                   {"NIC", use.nic},
                                   {"spine", use.spine},
                                   {"PCIe", use.pcie}})
    if (part > 0) text += fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ", name, 100 * part);
  if (!text.empty()) out.add("  links in use    {} of the step", text);
}

void collectives(Lines& out, const StepReport& r) {
  if (r.collectives.empty()) return;
  out.add("");
  out.add("collectives of a step");
  out.add("  {:<16}{:<16}{:>6}{:>14}{:>13}{:>13}  {}", "kind", "communicator", "count", "bytes",
          "time", "exposed", r.links ? "NCCL" : "");
  for (size_t i = 0; i < r.collectives.size();) {
    CollectiveRow sum = r.collectives[i];
    Bytes largest = sum.bytes_total / std::max<int64_t>(1, sum.count);
    std::string choice = chosen(sum);
    size_t j = i + 1;
    for (; j < r.collectives.size() && r.collectives[j].kind == sum.kind &&
           r.collectives[j].comm == sum.comm;
         ++j) {
      const CollectiveRow& row = r.collectives[j];
      sum.count += row.count;
      sum.bytes_total += row.bytes_total;
      sum.time += row.time;
      sum.exposed += row.exposed;
      const Bytes bytes = row.bytes_total / std::max<int64_t>(1, row.count);
      if (bytes > largest) {
        largest = bytes;
        choice = chosen(row);
      }
    }
    i = j;
    out.add("  {:<16}{:<16}{:>6}{:>14}{:>13}{:>13}  {}", name_of(sum.kind),
            sum.comm.v < r.communicator_names.size() ? r.communicator_names[sum.comm.v] : "",
            sum.count, format_bytes(sum.bytes_total), duration(sum.time), duration(sum.exposed),
            choice);
  }
  if (r.links) links(out, *r.links);
}

}  // namespace

std::string report_table(const StepReport& r) {
  Lines out;
  headline(out, r);
  for (const std::string& note : r.notes) {
    out.add("");
    out.add("note: {}", note);
  }
  memory(out, r.memory);
  memory_by_group(out, r);
  blocks(out, r.memory);
  after_steps(out, r.memory);
  exposed(out, r);
  collectives(out, r);
  return out.take();
}

std::string groups_csv(const std::vector<GroupRow>& groups) {
  std::string out =
      "name,numel,padded_numel,shard_bytes,all_gather_bytes,reduce_scatter_bytes,reshard\n";
  for (const GroupRow& g : groups)
    fmt::format_to(std::back_inserter(out), "{},{},{},{},{},{},{}\n",
                   csv_field(g.name.empty() ? "(root)" : g.name), g.numel, g.padded_numel,
                   g.shard_bytes, g.all_gather_bytes, g.reduce_scatter_bytes, g.reshard);
  return out;
}

}  // namespace shardsim
