// Questions to a sweep: which points are best, which are worth a look, and what each axis does.
//
// Only points that ended and are what the study requires, fit in memory above all, count. A scenario that several
// points share is one answer, of its first point.
// Worked example, step times 2, 1, 4 s at peaks of 10, 20, 30 GiB: best is the second; the Pareto front
// of step time against memory is the first and the second, since the third is worse in both.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/study/sweep_store.h"

namespace shardsim {

enum class Objective : uint8_t { step_time, tokens_per_s, tokens_per_s_per_gpu, peak_memory, cost };
// "step-time", "tokens-per-s", ...; nullopt for another word.
std::optional<Objective> objective_of(std::string_view name);
std::string_view name_of(Objective objective);
std::string objective_names();  // for messages

struct Answer {
  const StoredPoint* point = nullptr;
  const SweepRow* row = nullptr;
};

struct Question {
  Objective objective = Objective::step_time;
  Requirements require;
};

// Why the answers do not count this row, which has no error: "does not fit in memory", "step_time_s is
// not at most 2 s"; empty: they do.
std::string why_excluded(const Requirements& require, const SweepRow& row);

// Best first; ties in the order of the points. Throws Error where the objective is cost and no row has
// one.
std::vector<Answer> ranked(const StoredSweep& sweep, const Question& question);
// By rising step time, each with less memory than all before it.
std::vector<Answer> pareto(const StoredSweep& sweep, const Question& question);

struct PlaceEffect {
  std::string label;
  int64_t points = 0;           // that count
  double best = 0, median = 0;  // of the objective
};
struct AxisEffect {
  std::string axis;
  std::vector<PlaceEffect> places;  // in the study's order
  // How much worse the worst place's best is than the best place's, as a fraction.
  double spread = 0;
  // The same with all other axes held (sweep_spread.h).
  double held_median = 0, held_most = 0;
};
// Widest spread first.
std::vector<AxisEffect> sensitivity(const StoredSweep& sweep, const Question& question);

double value_of(Objective objective, const SweepRow& row);

// Counts, the best `most` points, the front and the axes.
std::string sweep_table(const StoredSweep& sweep, const Question& question, size_t most);
// All points, a line each: labels, then figures; why the answers exclude it, and the error, last.
std::string sweep_csv(const StoredSweep& sweep, const Requirements& require);
// {schema_version, name, question, axes, total, points[] {point, labels, ...}, best[], pareto[], sensitivity[]}
std::string sweep_json(const StoredSweep& sweep, const Question& question);

}  // namespace shardsim
