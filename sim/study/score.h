// What a set of errors amounts to, in percent of what was measured.
// Worked number: 1, -2, 3, -10: mean 4, bias -2, median 2.5, 90 % at place 2.7 of 1 2 3 10: 7.9.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace shardsim {

struct Score {
  size_t count = 0;
  double median_abs_pct = 0, mean_abs_pct = 0, p90_abs_pct = 0;  // of absolute errors
  double worst_pct = 0, bias_pct = 0;                            // with their signs
};
Score score(std::vector<double> errors_pct);
// Of means of several errors: the means with their signs, and of the absolute values. The bias is of
// the first, all else of the second; the worst has its row's sign.
// Worked number: -1 and 3 with absolute means 2 and 3: bias 1, mean 2.5, worst 3.
Score score(const std::vector<double>& errors_pct, std::vector<double> absolute_pct);

// null where there is no error.
nlohmann::ordered_json score_json(const Score& s);

}  // namespace shardsim
