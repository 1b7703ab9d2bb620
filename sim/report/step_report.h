// The result of a run: one step's time, where it goes, memory and its holders. Written for people
// as a table, for programs as JSON (schema_version 1), and its groups as CSV.
//
// Formulas:
//   step_time_s            length of the last step played, the steady one; first_step_time_s of the
//                          first (sim/report/timeline.h says what a step's ends are)
//   tokens_per_s_per_gpu   tokens of one step on one GPU / step_time_s
//   mfu                    flops_per_token x tokens_per_s_per_gpu / dense peak of the compute type;
//                          mfu_definition says which FLOPs are counted
//   hfu                    the same with the FLOPs really done, recomputation included
//   headroom_bytes         capacity of the GPU - its CUDA context - peak; negative: out of memory,
//                          and the missing bytes
// At memory level `live` what the allocator adds to live bytes is not known: active, reserved and
// device peaks are null.
// Worked number: 16,384 tokens in 1.463 s are 11,199 tokens/s; at 57.91e9 FLOPs a token and 989
// TFLOPS that is 65.6 % MFU.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/cost/assumptions.h"
#include "sim/report/exposed.h"
#include "sim/report/interference.h"
#include "sim/report/planning.h"
#include "sim/report/timeline.h"
#include "sim/schedule/trace.h"
#include "sim/schedule/works.h"

namespace shardsim {

// One parameter group, in the order of GroupId.
struct GroupRow {
  std::string name;  // "" is the root
  int64_t numel = 0;
  int64_t padded_numel = 0;
  Bytes shard_bytes = 0;  // of a rank, in storage type
  Bytes all_gather_bytes = 0;
  Bytes reduce_scatter_bytes = 0;
  std::string reshard;  // "true", "false" or the ranks it is resharded to
  std::string block;    // that it lies in, "" outside of them
};

struct ModelFacts {
  std::string name;
  int64_t params = 0;
  double flops_per_token = 0;           // for MFU
  double hardware_flops_per_token = 0;  // with recomputation, for HFU
  std::string mfu_definition;
};

struct RunFacts {
  std::string name;
  std::string strategy = "fsdp2";
  Cluster cluster;
  int64_t world = 1;
  int64_t tokens_per_step = 0;  // of one GPU, over all micro-batches of a step
  double peak_tflops = 0;       // dense, of the compute type
  std::string compute_dtype;
  double scale_tax = 1;  // factor that the step is longer by for its ranks (sim/cost/stragglers.h)
};

struct CollectiveRow {
  WorkKind kind = WorkKind::AllGather;
  GroupId group;
  CommId comm;
  int64_t count = 0;
  Bytes bytes_total = 0;
  Time time, exposed;
  // What NCCL takes for it (sim/study/link_report.h); empty: not known, or one rank.
  std::string algorithm, protocol;  // "Ring", "LL128"; "table": the user's sweep
  int channels = 0, ctas = 0;
};

// What the host itself does in a step.
struct HostWorkRow {
  std::string name;  // "CPU optimizer"
  int64_t count = 0;
  int64_t elements = 0;
  Bytes bytes = 0;
  Time time;
};

// Part of the step in which each kind of link is full.
struct LinkUse {
  double nvlink = 0, nic = 0, spine = 0, pcie = 0;
};

struct MemoryRow {
  std::string name;  // of the mark
  int step = -1;
  Time host;
  Bytes allocated = 0, allocated_peak = 0;
  std::optional<Bytes> active, active_peak, reserved, reserved_peak;  // level blocks
};

// Free blocks of the caching allocator where reserved bytes first reached their peak.
struct FreeBlockRow {
  Bytes size = 0, segment_size = 0;
  std::string left_by;  // "activations of model.layers.3"; empty: nobody had it
};

struct MemoryReport {
  Bytes capacity = 0;  // of the GPU, without its context
  Bytes peak_allocated = 0;
  std::optional<Bytes> peak_active, peak_reserved, peak_device;
  std::string peak_phase;
  std::array<Bytes, kCategories> by_category{};
  std::vector<Bytes> by_group;  // by GroupId, then what belongs to no group
  std::vector<MemoryRow> rows;
  std::vector<FreeBlockRow> free_blocks;  // the largest, level blocks

  Bytes context = 0;                     // of the device, before any tensor
  std::optional<MemoryFailure> failure;  // level blocks: where the run ended

  // What the device has left at the peak, by the highest figure that the level knows.
  Bytes headroom() const {
    if (failure) return -failure->missing;
    return capacity - peak_reserved.value_or(peak_allocated);
  }
  bool oom() const { return failure.has_value() || headroom() < 0; }
  Category largest() const;
  int last_step() const;  // of the rows; -1: none was reached
};

struct StepReport {
  RunFacts run;
  ModelFacts model;
  StepTimes first, steady;
  std::vector<CollectiveRow> collectives;       // of the steady step, by kind, group, communicator
  std::vector<std::string> communicator_names;  // by CommId
  std::vector<HostWorkRow> host_work;           // of the steady step
  std::optional<LinkUse> links;                 // none: the cost model knows no links
  std::vector<Exposed> exposed;                 // of the steady step
  std::vector<Interference> interference;       // of the steady step
  MemoryReport memory;
  std::vector<GroupRow> groups;
  std::optional<Planning> planning;     // of training.token_budget
  std::vector<PricedWith> priced_with;  // none with flat costs
  std::vector<std::string> notes;       // what costs time and need not, in sentences

  // What the scale tax added to the step.
  Time tax() const {
    const auto length = static_cast<double>(steady.length().ps);
    return {static_cast<int64_t>(length - length / run.scale_tax)};
  }
  double step_time_s() const { return steady.length().as_s(); }
  double tokens_per_s_per_gpu() const;
  double mfu() const;
  double hfu() const;
};

// Builds the schedule graph for the exposed intervals; a sweep uses Timeline alone.
StepReport make_step_report(RunFacts run, ModelFacts model, std::vector<GroupRow> groups,
                            const Schedule& schedule, const Trace& trace);

std::string_view name_of(Category category);
std::string group_label(const std::vector<GroupRow>& groups,
                        GroupId group);  // "(root)", "layers.3"

// "all_gather layers.3".
std::string interference_name(const StepReport& report, const Interference& i);

std::string report_json(const StepReport& report);
std::string report_table(const StepReport& report);
// name,numel,padded_numel,shard_bytes,all_gather_bytes,reduce_scatter_bytes,reshard
std::string groups_csv(const std::vector<GroupRow>& groups);

}  // namespace shardsim
