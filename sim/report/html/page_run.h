// One run as a page: the step report, every launch on its stream, exposed intervals, memory by category
// over time and the groups' times. What a page is: sim/report/html/page.h.
//
// Its data: the report as `run --format json` writes it, names, and columns of whole numbers (pack.h) in
// the order of web/run_data.js: classes of launches (kind, name, group, ...), then each stream's
// launches (gap to the end before, length, class, how long after its issue it started, what sharing
// added; in ns), the host's own work, exposed intervals by step, the curve of memory (in blocks of 512).
//
// More than `most_spans` launches: steps are left out from the first on, then the last step's shortest
// launches; more than twice as many points of memory: of neighbours the highest stays. The page says
// what was left out.
// Worked number: Llama-3-8B on 8 GPUs, three steps: 9,351 launches and 8,192 points of memory are 51 KB
// packed (68 KB in base64), the page 180 KB.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/report/step_report.h"

namespace shardsim {

struct RunPageOptions {
  std::span<const Time> launch;     // what launches cost the host, by WorkId
  std::span<const Bytes> reserved;  // as memory_curve takes it
  size_t most_spans = 200'000;
};

std::string run_page(const StepReport& report, const Schedule& schedule, const Trace& trace,
                     const RunPageOptions& options);

}  // namespace shardsim
