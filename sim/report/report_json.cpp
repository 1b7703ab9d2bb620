#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/report/step_report.h"

namespace shardsim {
namespace {

using Json = nlohmann::ordered_json;

// A division is rounded correctly where a product with 1e-12 is not: 1.463, not 1.4630000000000001.
double seconds(Time t) { return static_cast<double>(t.ps) / 1e12; }
double ratio(double x) { return std::round(x * 1e6) / 1e6; }

Json optional_bytes(const std::optional<Bytes>& b) { return b ? Json(*b) : Json(nullptr); }

Json step_json(const StepTimes& s) {
  return {{"step", s.step},
          {"start_s", seconds(s.start)},
          {"step_time_s", seconds(s.length())},
          {"compute_busy_s", seconds(s.compute_busy)},
          {"comm_busy_s", seconds(s.comm_busy)},
          {"copy_busy_s", seconds(s.copy_busy)},
          {"exposed_comm_s", seconds(s.exposed_comm)},
          {"interference_s", seconds(s.slowed)},
          {"overlap_fraction", ratio(s.overlap_fraction())},
          {"host_bound_fraction", ratio(s.host_bound_fraction())}};
}

// "step1.0.after_forward" is "0.after_forward" inside its step.
std::string phase_of(const std::string& mark) {
  if (mark.rfind("step", 0) != 0) return mark;
  const size_t dot = mark.find('.');
  return dot == std::string::npos ? mark : mark.substr(dot + 1);
}

Json memory_json(const MemoryReport& m, const std::vector<GroupRow>& groups) {
  Json j;
  j["peak_allocated_bytes"] = m.peak_allocated;
  j["peak_active_bytes"] = optional_bytes(m.peak_active);
  j["peak_reserved_bytes"] = optional_bytes(m.peak_reserved);
  j["peak_device_bytes"] = optional_bytes(m.peak_device);
  j["peak_phase"] = m.peak_phase;
  j["by_category"] = Json::object();
  for (int c = 0; c < kCategories; ++c)
    j["by_category"][std::string(name_of(static_cast<Category>(c)))] =
        m.by_category[static_cast<size_t>(c)];
  j["by_group"] = Json::array();
  for (size_t g = 0; g < m.by_group.size(); ++g)
    j["by_group"].push_back({{"group", g < groups.size() ? Json(groups[g].name) : Json(nullptr)},
                             {"bytes", m.by_group[g]}});
  j["by_phase"] = Json::object();
  const int last = m.last_step();
  for (const MemoryRow& row : m.rows)
    if (row.step == last) j["by_phase"][phase_of(row.name)] = row.allocated_peak;
  j["oom"] = m.oom();
  j["oom_largest_category"] = m.oom() ? Json(name_of(m.largest())) : Json(nullptr);
  j["oom_missing_bytes"] = m.oom() ? Json(-m.headroom()) : Json(nullptr);
  j["oom_message"] = m.failure ? Json(m.failure->message) : Json(nullptr);
  j["capacity_bytes"] = m.capacity;
  j["headroom_bytes"] = m.headroom();
  j["free_blocks_at_reserved_peak"] = Json::array();
  for (const FreeBlockRow& b : m.free_blocks)
    j["free_blocks_at_reserved_peak"].push_back(
        {{"bytes", b.size}, {"segment_bytes", b.segment_size}, {"left_by", b.left_by}});
  j["marks"] = Json::array();
  for (const MemoryRow& row : m.rows)
    j["marks"].push_back({{"mark", row.name},
                          {"host_s", seconds(row.host)},
                          {"allocated_bytes", row.allocated},
                          {"peak_allocated_bytes", row.allocated_peak},
                          {"peak_active_bytes", optional_bytes(row.active_peak)},
                          {"reserved_bytes", optional_bytes(row.reserved)},
                          {"peak_reserved_bytes", optional_bytes(row.reserved_peak)}});
  return j;
}

Json planning_json(const Planning& p) {
  const std::optional<double> cost = p.cost();
  return {{"tokens", p.tokens},
          {"steps", p.steps},
          {"hours", p.hours},
          {"days", p.days()},
          {"gpu_hours", p.gpu_hours},
          {"price_per_gpu_hour", cost ? Json(p.price) : Json(nullptr)},
          {"cost", cost ? Json(*cost) : Json(nullptr)}};
}

}  // namespace

std::string report_json(const StepReport& r) {
  Json j;
  j["schema_version"] = 1;
  j["name"] = r.run.name;
  j["strategy"] = r.run.strategy;
  j["cluster"] = {{"name", r.run.cluster.name},
                  {"gpu", r.run.cluster.gpu.name},
                  {"nodes", r.run.cluster.nodes},
                  {"gpus_per_node", r.run.cluster.gpus_per_node},
                  {"world", r.run.world}};
  j["step_time_s"] = seconds(r.steady.length());
  j["first_step_time_s"] = seconds(r.first.length());
  j["tokens_per_s_per_gpu"] = std::round(r.tokens_per_s_per_gpu() * 1e3) / 1e3;
  j["mfu"] = ratio(r.mfu());
  j["mfu_definition"] = r.model.mfu_definition;
  j["hfu"] = ratio(r.hfu());
  j["compute_busy_s"] = seconds(r.steady.compute_busy);
  j["comm_busy_s"] = seconds(r.steady.comm_busy);
  j["exposed_comm_s"] = seconds(r.steady.exposed_comm);
  j["interference_s"] = seconds(r.steady.slowed);
  j["priced_with"] = Json::array();
  for (const PricedWith& p : r.priced_with)
    j["priced_with"].push_back({{"what", p.what}, {"value", p.value}, {"assumed", p.assumed}});
  j["scale_tax_s"] = seconds(r.tax());
  j["overlap_fraction"] = ratio(r.steady.overlap_fraction());
  j["host_bound_fraction"] = ratio(r.steady.host_bound_fraction());
  j["collectives"] = Json::array();
  for (const CollectiveRow& c : r.collectives) {
    const bool named = c.comm.v < r.communicator_names.size();
    j["collectives"].push_back(
        {{"kind", name_of(c.kind)},
         {"group", c.group.valid() ? Json(group_label(r.groups, c.group)) : Json(nullptr)},
         {"communicator", named ? Json(r.communicator_names[c.comm.v]) : Json(nullptr)},
         {"count", c.count},
         {"bytes_total", c.bytes_total},
         {"time_s", seconds(c.time)},
         {"exposed_s", seconds(c.exposed)},
         {"algorithm", c.algorithm.empty() ? Json(nullptr) : Json(c.algorithm)},
         {"protocol", c.protocol.empty() ? Json(nullptr) : Json(c.protocol)},
         {"channels", c.channels > 0 ? Json(c.channels) : Json(nullptr)},
         {"ctas", c.ctas > 0 ? Json(c.ctas) : Json(nullptr)}});
  }
  j["host_work"] = Json::array();
  for (const HostWorkRow& w : r.host_work)
    j["host_work"].push_back({{"name", w.name},
                              {"count", w.count},
                              {"elements", w.elements},
                              {"bytes", w.bytes},
                              {"time_s", seconds(w.time)}});
  j["link_utilisation"] = r.links ? Json{{"nvlink", ratio(r.links->nvlink)},
                                         {"nic", ratio(r.links->nic)},
                                         {"spine", ratio(r.links->spine)},
                                         {"pcie", ratio(r.links->pcie)}}
                                  : Json(nullptr);
  j["exposed"] = Json::array();
  for (const Exposed& e : r.exposed)
    j["exposed"].push_back({{"start_s", seconds(e.start)},
                            {"duration_s", seconds(e.duration)},
                            {"waiting_on", e.waiting_on},
                            {"cause", name_of(e.cause)}});
  j["interference"] = Json::array();
  for (const Interference& i : r.interference)
    j["interference"].push_back({{"by", interference_name(r, i)}, {"time_s", seconds(i.time)}});
  j["memory"] = memory_json(r.memory, r.groups);
  if (r.planning) j["planning"] = planning_json(*r.planning);
  if (!r.notes.empty()) j["notes"] = r.notes;
  j["groups"] = Json::array();
  for (const GroupRow& g : r.groups)
    j["groups"].push_back({{"name", g.name.empty() ? "(root)" : g.name},
                           {"numel", g.numel},
                           {"padded_numel", g.padded_numel},
                           {"shard_bytes", g.shard_bytes},
                           {"all_gather_bytes", g.all_gather_bytes},
                           {"reduce_scatter_bytes", g.reduce_scatter_bytes},
                           {"reshard", g.reshard}});
  j["model"] = {{"name", r.model.name},
                {"params", r.model.params},
                {"flops_per_token", std::llround(r.model.flops_per_token)}};
  j["steps"] = Json::array();
  if (r.memory.failure) {
    // No step ended.
    for (const char* key :
         {"step_time_s", "first_step_time_s", "tokens_per_s_per_gpu", "mfu", "hfu",
          "compute_busy_s", "comm_busy_s", "exposed_comm_s", "interference_s", "scale_tax_s",
          "overlap_fraction", "host_bound_fraction"})
      j[key] = nullptr;
    return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  j["steps"].push_back(step_json(r.first));
  if (r.steady.step != r.first.step) j["steps"].push_back(step_json(r.steady));
  // A name may hold bytes that are not UTF-8.
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace shardsim
