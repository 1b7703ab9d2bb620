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

// null where there is no error.
nlohmann::ordered_json score_json(const Score& s);

}  // namespace shardsim
