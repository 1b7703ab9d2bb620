// A sweep as a page: scatter with its Pareto front, filters, the best points, what each axis does, and
// each point's scenario, which the page puts together (sweep_scenarios.h). What a page is:
// sim/report/html/page.h.
//
// Its data are columns: of points their number, their row and their place on each axis; of rows their
// figures. More than `most_points`: those that come first by the question's objective stay, then the others
// in order, and the page says how many are left out.
// Worked number: 10,000 points of 3 axes, each its own scenario: some 1.5 MB.
#pragma once

#include <string>

#include "sim/study/sweep_query.h"

namespace shardsim {

inline constexpr size_t kMostPagePoints = 30'000;

std::string sweep_page(const StoredSweep& sweep, const Question& question,
                       size_t most_points = kMostPagePoints);

}  // namespace shardsim
