// The least of a function of a few positive numbers without its derivatives: one number after another,
// and each two together, are stepped up or down by a factor that grows where it helped and shrinks
// where it did not (Hooke and Jeeves; the pairs follow kinks that run askew). Always the same result.
// Kernels take the least over tiles and the larger of two times, so their errors have such kinks.
// Worked example: of (ln x - ln 3)^2 from x = 1 it gives 3 within 0.1 %.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace shardsim {

template <class F>
double pattern_search(F&& f, std::vector<double>& x) {
  constexpr double kFirst = .2, kLast = 2e-4;  // of the logarithm
  constexpr int kMostRounds = 400;
  struct Move {
    size_t a, b;  // the same: one number alone
    double sign;  // of b's step beside a's
    double step = kFirst;
  };
  std::vector<Move> moves;
  for (size_t a = 0; a < x.size(); ++a) {
    moves.push_back({a, a, 0});
    for (size_t b = 0; b < a; ++b)
      for (const double sign : {1., -1.}) moves.push_back({a, b, sign});
  }
  double least = f(x);
  for (int round = 0; round < kMostRounds; ++round) {
    double longest = 0;
    for (Move& move : moves) {
      bool moved = false;
      for (const double sign : {1., -1.}) {
        const double a = x[move.a], b = x[move.b];
        x[move.b] = b * std::exp(sign * move.sign * move.step);
        x[move.a] = a * std::exp(sign * move.step);
        if (const double value = f(x); value < least) {
          least = value;
          moved = true;
          break;
        }
        x[move.b] = b;
        x[move.a] = a;
      }
      move.step *= moved ? 1.5 : .5;
      longest = std::max(longest, move.step);
    }
    if (longest < kLast) break;
  }
  return least;
}

}  // namespace shardsim
