// Two op logs (sim/report/op_log.h) side by side: a prediction and a measurement.
//
// Where both have the same fingerprint, launch n of one is launch n of the other. Otherwise ops are
// joined by kind, stream role (stream_roles) and group, in the order of their starts; where one log
// names no groups, by kind and role alone, and kinds that run on streams of other roles by kind alone.
// Products and kernels of a key whose counts differ are joined by no order: they are counted only. What
// finds no partner is counted and named.
// Errors are predicted / measured - 1, in percent. Overlap and exposed time are op_times of each log.
// Logs of different scale have no common time: errors of time are left out, counts and bytes are not.
// Collectives of a group that move 2, 3, ... 64 or the number of ranks times the bytes, or such a part of
// them, or are as many times as many, are flagged: a wrong type, a rank's part taken for the whole, or a
// wrong count of micro-batches.
// Worked number: gathers of 20 us predicted and 25 us measured: error -20 %.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "sim/report/op_log.h"

namespace shardsim {

// The ops of one kind (and group, or stream role), in both logs: [0] predicted, [1] measured.
struct OpRow {
  WorkKind kind = WorkKind::Kernel;
  std::string key;  // group or stream role; empty by kind
  std::array<int64_t, 2> count{};
  std::array<Time, 2> time{};
  std::array<std::optional<Bytes>, 2> bytes{};  // known where all its ops' are
};

struct OpPair {
  size_t predicted = 0, measured = 0;  // indices of ops
};

struct Unmatched {
  bool measured = false;  // in the measured log; else in the predicted one
  WorkKind kind = WorkKind::Kernel;
  std::string role, group, name;  // name: of the first
  int64_t count = 0;
};

struct OpComparison {
  OpLog log[2];  // predicted, measured
  OpTimes times[2];
  bool by_launch = false;
  bool same_scale = true;
  std::vector<OpPair> pairs;
  std::vector<OpRow> by_kind, by_group, by_stream;  // by_stream: key only, kind means nothing
  std::vector<OpPair> worst;                        // by time, the furthest off first
  std::vector<Unmatched> unmatched;
  std::vector<std::string> flags;

  // Of the step; none where the scales differ.
  std::optional<double> step_error_pct() const;
};

OpComparison compare_ops(OpLog predicted, OpLog measured);

std::string op_comparison_table(const OpComparison& c);
std::string op_comparison_json(const OpComparison& c);
// by_kind, by_group and by_stream.
std::string op_comparison_csv(const OpComparison& c);

}  // namespace shardsim
