// Which measured rows are fitted and which are kept apart, and which constants are fitted, from a file:
// analysis/validation/training.yaml is the shipped one, and part of the program.
// Worked example: row lf23c-099 (MPT-760m) is of group lf23c, whose fitted models are 1b to 30b: test.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/study/fit.h"
#include "sim/study/measured_row.h"

namespace shardsim {

enum class RowRole : uint8_t {
  fit,
  test,           // kept apart; hardware and software year are fitted
  apart,          // reported by itself
  contradictory,  // with another row or physics: reported, not fitted
  unlisted,       // of a source that the file does not name
};
std::string_view name_of(RowRole role);

struct RowPart {
  RowRole role = RowRole::unlisted;
  std::string why;
};

class ValidationSplit {
 public:
  // Strict; Error with its place.
  static ValidationSplit parse(std::string_view text, const std::string& file);
  static ValidationSplit load(const std::string& path);
  static ValidationSplit shipped();

  RowPart part_of(const MeasuredRow& row) const;
  // Rows that no entry names are fitted: a user's own table.
  void fit_unlisted() { fits_unlisted_ = true; }
  bool fits_unlisted() const { return fits_unlisted_; }
  // One for each constant and each of these GPUs where a constant is of one GPU.
  std::vector<FitConstant> constants(const std::vector<std::string>& gpus) const;
  const FitOptions& noise() const { return noise_; }

 private:
  struct Source {
    std::string group;
    std::vector<std::string> models;  // none: all
    RowPart part;
  };
  struct Rows {
    std::vector<std::string> ids;
    std::string why;
  };
  struct Constant {
    std::string name;
    bool each_gpu = false;
    double sigma = .1;
  };
  FitOptions noise_;
  bool fits_unlisted_ = false;
  std::vector<Source> sources_;
  std::vector<Rows> contradictory_;
  std::vector<Constant> constants_;
};

}  // namespace shardsim
