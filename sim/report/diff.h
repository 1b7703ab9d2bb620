// What changes from one run, A, to another, B, and why. Of the steady step of each; pure: it only
// reads two reports with their schedules and traces.
//
// Pairing. Parameter groups are paired by the names of their parameters, not by their own: groups
// that share a parameter are one unit, so a group of two blocks in B is a unit with the two groups
// of A, and a unit may be in one of them alone. This holds across strategies and models.
// Reasons. Both lists add up to the difference that they explain:
//   exposed   the stretches of exposed communication (sim/report/exposed.h) by the work that compute
//             waited for, with what held that work back: its last edge in the schedule graph
//   path      the critical path, walked back from the end of the step (sim/report/chain.h), by the
//             works it goes through
// Worked number: in A compute waits for the gather of layers.0 [0, 30); in B the gather of layers.1
// comes first on the same communicator, so that layers.0 runs [30, 60): 30 us more are exposed and on
// the critical path, both by layers.1, which "holds up the next collective of its communicator".
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/report/phases.h"
#include "sim/report/step_report.h"
#include "sim/schedule/graph/schedule_graph.h"

namespace shardsim {

template <class T>
using Two = std::array<T, 2>;  // A, B

struct DiffSide {
  std::string file;
  const StepReport* report = nullptr;
  const Schedule* schedule = nullptr;
  const Trace* trace = nullptr;
  std::vector<std::vector<std::string>> parameters;           // names, by GroupId
  std::vector<std::pair<std::string, std::string>> settings;  // key path and value, as written
};

struct DiffUnit {
  std::string name;                   // of the side with fewer groups
  Two<std::vector<uint32_t>> groups;  // GroupId::v; none: only in the other
};

// A value that may not be known: no step was played to its end, no blocks, no such phase.
struct Figure {
  enum class Kind : uint8_t { time, bytes, count, rate, fraction } kind = Kind::count;
  std::string key;                   // with its unit
  std::string title;                 // for people
  Two<std::optional<double>> value;  // times in seconds
};

struct CollectiveChange {
  WorkKind kind = WorkKind::AllGather;
  Phase phase = Phase::forward;
  int unit = -1;  // index of units; -1: of no group
  Two<int64_t> count{};
  Two<Bytes> bytes{};
  bool changed() const { return count[0] != count[1] || bytes[0] != bytes[1]; }
};

struct PhaseChange {
  Phase phase = Phase::forward;
  Two<Time> time, exposed;
  Two<std::optional<Bytes>> peak_allocated, peak_reserved;  // since the step began
};

// What held a work back that compute waited for.
struct Hold {
  Cause cause = Cause::event;
  Why why = Why::event;  // the edge that let the work start
  int by_unit = -1;
  std::string by;  // what it came from: "all_gather"; empty: the host; of the host's own work: that
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads a defaulted comparison
  friend auto operator<=>(const Hold&, const Hold&) = default;
};

struct ExposedChange {
  Phase phase = Phase::forward;
  std::string what;  // "reduce_scatter"; "CPU optimizer"; "host"
  int unit = -1;
  Two<Time> time;
  Two<bool> issued{};   // whether such a work is in the step at all
  Two<Hold> hold;       // the one that most of the time is due to
  int rows = 1;         // that fold() made into this
  std::string example;  // the largest of them, where there are several
};

struct PathChange {
  Phase phase = Phase::forward;
  std::string what;  // "compute", "fsdp copies", "all_gather", "host", ...
  int unit = -1;
  Two<Time> time;
};

struct Diff {
  Two<std::string> file, name, model, strategy;
  Two<int64_t> world{}, tokens{};
  Two<std::string> gpu;
  Two<bool> timed{};  // a step was played to its end
  std::vector<DiffUnit> units;
  std::vector<Figure> summary;
  std::vector<CollectiveChange> collectives;  // all of them, in the order of A, then those of B
  std::vector<std::pair<Category, Two<Bytes>>> memory;  // at the peak, all that differ
  Two<std::string> peak_phase;
  std::vector<PhaseChange> phases;
  std::vector<ExposedChange> exposed;  // the largest change first, as the next
  std::vector<PathChange> path;
  struct Setting {
    std::string key;
    Two<std::optional<std::string>> value;
  };
  std::vector<Setting> settings;   // that differ
  std::vector<std::string> notes;  // what cannot be compared, in sentences
};

std::vector<DiffUnit> pair_groups(const DiffSide& a, const DiffSide& b);
Diff diff(const DiffSide& a, const DiffSide& b);

// "all_gather layers.3", "host".
std::string work_name(const Diff& d, std::string_view what, int unit);
// "compute waits for its event; it waits for all_gather layers.2 on the same communicator"; for each
// side, where they differ.
std::vector<std::string> reasons(const Diff& d, const ExposedChange& change);
std::string unit_name(const Diff& d, int unit);
// The same with the rows summed of units whose names differ by numbers only: "layers.*".
Diff fold(const Diff& d);

std::string diff_table(const Diff& d);
std::string diff_json(const Diff& d);
// The collectives that differ:
// phase,kind,group,count_a,count_b,bytes_a,bytes_b
std::string diff_csv(const Diff& d);

}  // namespace shardsim
