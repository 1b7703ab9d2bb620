// A study from a YAML file: one scenario, and the axes along which it varies. scenarios/README.md has
// its keys.
//
// A point is one place on every axis; points count through the product, the last axis fastest. What an
// axis sets are keys of the scenario by their whole path, so that anything a scenario can say can be
// varied. Points that `skip` matches, or `only` does not, are no points.
// Worked number: axes of 2, 3 and 4 places are 24 points; point 5 is place 0, 1, 1.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/config/document.h"
#include "sim/config/overlay.h"
#include "sim/config/requirements.h"
#include "sim/plan/scenario.h"

namespace shardsim {

inline constexpr int64_t kMostPoints = 1'000'000'000;

struct AxisPlace {
  std::string label;  // "8", "per_block"
  std::vector<Setting> settings;
};

struct Axis {
  std::string name;  // the path of what it sets, or a name of the study's own
  std::vector<AxisPlace> places;
};

class Study {
 public:
  const std::string& name() const { return name_; }
  const std::string& question() const { return question_; }
  const std::vector<Axis>& axes() const { return axes_; }
  const std::string& base_file() const { return base_file_; }
  const Document& base() const { return *base_; }  // the scenario that is varied
  // What answers count; no part of text(), so that it may change while the rows stay.
  const Requirements& require() const { return require_; }
  int64_t size() const { return size_; }  // points with those that are left out
  int64_t count() const;                  // without them
  // Of the whole study: another study, or the same with other values or with other contents of the
  // files that it names, has another one.
  const std::string& text() const { return text_; }

  std::vector<size_t> places(int64_t point) const;
  bool left_out(int64_t point) const;
  // The scenario's text as far as it decides anything, with digests of the files that it names: equal
  // for points that are the same scenario.
  std::string key(int64_t point) const;
  // Throws Error at the place of what is wrong, in the study or in the scenario.
  Scenario scenario(int64_t point) const;

 private:
  friend Study parse_study(std::string_view text, const std::string& file);
  struct Condition {  // by axis: the labels that it names; empty: any
    std::vector<std::vector<std::string>> labels;
    bool matches(const std::vector<Axis>& axes, const std::vector<size_t>& places) const;
  };
  Document document(int64_t point) const;
  void digest_files();

  std::string name_, question_, text_, base_file_;
  std::shared_ptr<const Document> study_, base_;
  std::vector<std::shared_ptr<const Document>> numbers_;  // of ranges
  std::vector<Axis> axes_;
  std::vector<Condition> skip_, only_;
  Requirements require_;
  int64_t size_ = 1;
  std::map<std::string, std::string> files_;  // digests, by the words that name them
};

Study load_study(const std::string& path);
Study parse_study(std::string_view text, const std::string& file);

}  // namespace shardsim
