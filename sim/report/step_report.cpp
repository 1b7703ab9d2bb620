#include "sim/report/step_report.h"

#include <algorithm>
#include <tuple>

#include "sim/base/error.h"

namespace shardsim {

std::string_view name_of(Category category) {
  switch (category) {
    case Category::parameters: return "parameters";
    case Category::buffers: return "buffers";
    case Category::optimizer_state: return "optimizer_state";
    case Category::gradients: return "gradients";
    case Category::unsharded_parameters: return "unsharded_parameters";
    case Category::unsharded_gradients: return "unsharded_gradients";
    case Category::all_gather_buffers: return "all_gather_buffers";
    case Category::reduce_scatter_buffers: return "reduce_scatter_buffers";
    case Category::activations: return "activations";
    case Category::recomputed_activations: return "recomputed_activations";
    case Category::backward: return "backward";
    case Category::temporary: return "temporary";
    case Category::workspace: return "workspace";
    case Category::buckets: return "buckets";
    case Category::optimizer: return "optimizer";
    case Category::count_: break;
  }
  return "?";
}

std::string group_label(const std::vector<GroupRow>& groups, GroupId group) {
  if (!group.valid()) return "";
  if (group.v >= groups.size()) return "group " + std::to_string(group.v);
  return groups[group.v].name.empty() ? "(root)" : groups[group.v].name;
}

std::string interference_name(const StepReport& report, const Interference& i) {
  std::string out(name_of(i.kind));
  if (i.group.valid()) out += " " + group_label(report.groups, i.group);
  return out;
}

Category MemoryReport::largest() const {
  const auto it = std::max_element(by_category.begin(), by_category.end());
  return static_cast<Category>(it - by_category.begin());
}

int MemoryReport::last_step() const {
  int last = -1;
  for (const MemoryRow& row : rows) last = std::max(last, row.step);
  return last;
}

double StepReport::tokens_per_s_per_gpu() const {
  const double t = step_time_s();
  return t > 0 ? static_cast<double>(run.tokens_per_step) / t : 0;
}

double StepReport::mfu() const {
  return run.peak_tflops > 0
             ? model.flops_per_token * tokens_per_s_per_gpu() / (run.peak_tflops * 1e12)
             : 0;
}

double StepReport::hfu() const {
  return run.peak_tflops > 0
             ? model.hardware_flops_per_token * tokens_per_s_per_gpu() / (run.peak_tflops * 1e12)
             : 0;
}

namespace {

void add_times(StepReport& r, const Schedule& schedule, const Trace& trace) {
  const int steps = steps_played(schedule, trace);
  SHARDSIM_ASSERT(steps > 0, "a run plays at least one step");
  Timeline timeline;
  timeline.build(schedule, trace, 0);
  r.first = timeline.times();
  if (steps > 1) timeline.build(schedule, trace, steps - 1);
  r.steady = timeline.times();

  for (const CollectiveTime& c : timeline.collectives()) {
    const Work& w = schedule.works[c.work.v];
    const auto same = [&](const CollectiveRow& x) {
      return x.kind == w.kind && x.group == w.group && x.comm == w.comm;
    };
    auto it = std::find_if(r.collectives.begin(), r.collectives.end(), same);
    if (it == r.collectives.end()) {
      r.collectives.push_back({w.kind, w.group, w.comm, 0, 0, {}, {}, {}, {}, 0, 0});
      it = r.collectives.end() - 1;
    }
    ++it->count;
    it->bytes_total += w.bytes;
    it->time += c.time;
    it->exposed += c.exposed;
  }
  std::sort(r.collectives.begin(), r.collectives.end(), [](const auto& a, const auto& b) {
    return std::tie(a.kind, a.comm.v, a.group.v) < std::tie(b.kind, b.comm.v, b.group.v);
  });

  uint32_t worked = 0;
  schedule.for_each([&](const Instr& in, const Segment&) {
    if (in.kind != Kind::HostWork) return;
    const uint32_t k = worked++;
    if (k < r.steady.first_worked || k >= r.steady.end_worked) return;
    const HostWork& w = schedule.host_works[in.a];
    auto it = std::find_if(r.host_work.begin(), r.host_work.end(),
                           [&](const HostWorkRow& x) { return x.name == w.name; });
    if (it == r.host_work.end()) {
      r.host_work.push_back({w.name, 0, 0, 0, {}});
      it = r.host_work.end() - 1;
    }
    ++it->count;
    it->elements += w.elements;
    it->bytes += w.bytes;
    it->time += trace.worked[k].end - trace.worked[k].start;
  });

  std::vector<std::string> names;
  for (const GroupRow& g : r.groups) names.push_back(g.name);
  r.interference = interference(schedule, trace, r.steady);
  r.exposed = explain_exposed(timeline, schedule, trace, build_graph(schedule), names);
}

// What lived at the peak, summed by group.
std::vector<Bytes> peak_by_group(const Schedule& schedule, const Trace& trace, size_t groups) {
  std::vector<Bytes> out(groups + 1);
  LiveWalk walk;
  for (uint32_t s = 0; s < schedule.segments.size() && s <= trace.peak_segment; ++s) {
    const Segment& segment = schedule.segments[s];
    const uint32_t end = s == trace.peak_segment ? trace.peak_instr + 1 : segment.end;
    for (uint32_t i = segment.begin; i < end; ++i) {
      const Instr& in = schedule.code[i];
      const int change = walk.change(in);
      if (change == 0) continue;
      const Buffer& b = schedule.buffers[segment.buffer(in).v];
      const Bytes bytes = round_block(b.bytes);
      out[std::min<size_t>(b.group.v, groups)] += change * bytes;
    }
  }
  // The allocation that found no room is not there.
  if (trace.out_of_memory) {
    const Buffer& b = schedule.buffers[trace.out_of_memory->buffer];
    out[std::min<size_t>(b.group.v, groups)] -= round_block(b.bytes);
  }
  return out;
}

}  // namespace

StepReport make_step_report(RunFacts run, ModelFacts model, std::vector<GroupRow> groups,
                            const Schedule& schedule, const Trace& trace) {
  StepReport r;
  r.run = std::move(run);
  r.model = std::move(model);
  r.groups = std::move(groups);
  for (const Comm& c : schedule.comms) r.communicator_names.push_back(c.name);

  if (!trace.out_of_memory) add_times(r, schedule, trace);
  const Gpu& gpu = r.run.cluster.gpu;
  r.memory.capacity = gpu.memory_bytes - gpu.context_bytes;
  r.memory.context = gpu.context_bytes;
  r.memory.failure = trace.out_of_memory;
  r.memory.by_category = trace.peak_by_category;
  r.memory.by_group = peak_by_group(schedule, trace, r.groups.size());
  r.memory.peak_allocated = trace.peak;
  if (trace.out_of_memory)
    r.memory.peak_phase = trace.marks.empty()
                              ? "in the initialization"
                              : "after " + schedule.marks[trace.marks.back().mark].name;
  else if (trace.peak_mark < trace.marks.size())
    r.memory.peak_phase = schedule.marks[trace.marks[trace.peak_mark].mark].name;
  if (trace.out_of_memory) {
    r.memory.peak_active = trace.out_of_memory->active_peak;
    r.memory.peak_reserved = trace.out_of_memory->reserved;
  }
  for (const MarkRow& m : trace.marks) {
    const MarkInfo& info = schedule.marks[m.mark];
    MemoryRow& row = r.memory.rows.emplace_back();
    row.name = info.name;
    row.step = info.step;
    row.host = m.host;
    row.allocated = m.allocated;
    row.allocated_peak = m.allocated_peak;
    if (m.reserved_peak > 0) {
      row.active = m.active;
      row.active_peak = m.active_peak;
      row.reserved = m.reserved;
      row.reserved_peak = m.reserved_peak;
      r.memory.peak_active = std::max(r.memory.peak_active.value_or(0), m.active_peak);
      r.memory.peak_reserved = std::max(r.memory.peak_reserved.value_or(0), m.reserved_peak);
      r.memory.peak_device = *r.memory.peak_reserved + gpu.context_bytes;
    }
    // An earlier step may have been higher than the last; the verdict is on the highest.
    if (m.allocated_peak > r.memory.peak_allocated) {
      r.memory.peak_allocated = m.allocated_peak;
      r.memory.peak_phase = info.name;
    }
  }
  return r;
}

}  // namespace shardsim
