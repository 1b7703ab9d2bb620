// What one rank's device did in one step, op by op: predicted by a simulation, measured by a replay of
// the same schedule, or imported from a profile. `shardsim compare` joins two of them, `shardsim
// calibrate --from` fits constants to one.
//
// As a file (JSON, schema_version 1; sim/study/read_op_log.h reads it, scenarios/README.md has the
// format for users):
//   source       simulation, replay host, replay cuda or kineto
//   fingerprint  of the step of the schedule (sim/schedule/fingerprint.h); null: there is none, and
//                launches are no numbers of a schedule's
//   scale        a replay moved and computed 1/scale of what the schedule says; 1: all of it. Bytes and
//                FLOPs of ops are always the schedule's.
//   step_time_s  as sim/report/timeline.h defines a step; start_s of an op counts from the step's start,
//                and is below 0 where it ran before the step before had ended
//   launch       number of the launch within the step, from 0; null: not known
//   bytes        of collectives the whole gathered, reduced or broadcast tensor; null: not known
// Worked example: step 2 of a run begins at 40 us with launches 7, 8 and 9, of which 8 gathers from 41
// to 61 us: its op has launch 1, start_s 1e-06, duration_s 2e-05.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/report/timeline.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/trace.h"

namespace shardsim {

enum class OpSource : uint8_t { simulation, replay_host, replay_cuda, kineto };
std::string_view name_of(OpSource source);
std::optional<OpSource> op_source_of(std::string_view name);

struct LoggedOp {
  std::optional<uint32_t> launch;
  uint32_t stream = 0;  // index into OpLog::streams
  WorkKind kind = WorkKind::Kernel;
  std::string name;   // of the kernel; empty: not known
  std::string group;  // of parameters, "(root)" for the root's; empty: none, or not known
  std::optional<Bytes> bytes;
  std::optional<int64_t> flops;
  Time start, duration;

  Time end() const { return start + duration; }
};

// What the caller knows beside schedule and trace.
struct OpLogFacts {
  OpSource source = OpSource::simulation;
  std::string scenario;
  int64_t rank = 0, world = 1;
  double scale = 1;
  int64_t repeats = 1;               // of the step
  std::string statistic = "single";  // what the times are of the repeats: single, median, min
  std::map<std::string, std::string> environment;  // GPU, driver, NCCL_... and so on
  std::vector<std::string> warnings;
};

struct OpLog : OpLogFacts {
  std::string fingerprint;  // empty: none
  std::vector<std::string> streams;
  std::vector<LoggedOp> ops;  // in the order of their launches, or else of their starts
  Time step_time;
  std::optional<Bytes> peak_allocated, peak_active, peak_reserved;
};

// Of the last step played; group names by GroupId ("" is the root), as in StepReport. Peaks are of the
// whole run, as `shardsim run` reports them; what the trace has not (0) is not known. Throws Error where
// no step ended.
OpLog op_log_of(const Schedule& schedule, const Trace& trace, std::span<const std::string> groups,
                OpLogFacts facts);

std::string op_log_json(const OpLog& log);

// Busy and exposed time of a log, by the definitions of sim/report/timeline.h, from its intervals
// clipped to the step. Worked number: compute [0, 10) and [25, 35), a collective [10, 30): compute_busy
// 20, comm_busy 20, exposed_comm 15, overlap .25.
struct OpTimes {
  Time compute_busy, comm_busy, copy_busy, exposed_comm;
  double overlap_fraction() const {
    return comm_busy.ps == 0
               ? 1.0
               : 1.0 - static_cast<double>(exposed_comm.ps) / static_cast<double>(comm_busy.ps);
  }
};
OpTimes op_times(const OpLog& log);

// When ops of a kind run, in order, united, clipped to the step.
std::vector<Interval> busy_intervals(const OpLog& log, Busy kind);

// What each stream of a log is for, from its ops alone, so that streams of different software meet:
// "compute" has the most time of products (of kernels where there is none); another is named for the
// kind that takes most of its time: "all_gather", "reduce_scatter", "copy", "kernels"; "idle" has none.
std::vector<std::string> stream_roles(const OpLog& log);

}  // namespace shardsim
