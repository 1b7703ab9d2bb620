#include "sim/config/study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "sim/base/escape.h"
#include "sim/base/input_file.h"
#include "sim/base/short_key.h"
#include "sim/config/model.h"
#include "sim/config/reader.h"
#include "sim/config/scenario.h"
#include "sim/config/tree_builder.h"

namespace shardsim {

namespace {

constexpr int64_t kMostPlaces = 100'000;  // of one axis
constexpr double kLargest = 1e15;

// Names in a scenario are words; an axis that is none of its keys is found when its first point is read.
std::vector<std::string> path_of(const Map& map, const std::string& path) {
  std::vector<std::string> names = key_path(path);
  for (const std::string& n : names)
    if (n.empty())
      map.fail_key(path, "expected the path of a scenario's key, like training.micro_batch");
  if (names.front() == "shardsim" || names.front() == "name")
    map.fail_key(path, "is no key that a study varies");
  return names;
}

// What stands in a table for a value: the word itself, or what the value says.
std::string label_of(const Value& v) {
  if (v.is_scalar()) return printable(v.word());
  if (v.is_null()) return "~";
  std::string out = v.canonical();
  out.erase(std::remove(out.begin(), out.end(), '\''), out.end());
  return printable(out);
}

class AxisReader {
 public:
  // Numbers of ranges are nodes of a document of their own.
  explicit AxisReader(std::shared_ptr<const Document> document) : document_(std::move(document)) {}

  Axis read(const Map& axes, const std::string& name) {
    const Value v = axes.at(name);
    Axis axis;
    axis.name = printable(name);
    if (v.is_list()) {
      const std::vector<std::string> path = path_of(axes, name);
      for (const Value& place : v.list("values", 1)) axis.places.push_back(one(path, place));
    } else if (v.is_map()) {
      read_map(axes, name, v, axis);
    } else {
      v.fail_expected("a list of values, or a map {from, to, step}, {zip} or {choices}");
    }
    if (static_cast<int64_t>(axis.places.size()) > kMostPlaces)
      v.fail(fmt::format("{} places are too many for one axis (at most {})", axis.places.size(),
                         kMostPlaces));
    refuse_equal_labels(v, axis);
    return axis;
  }

 private:
  AxisPlace one(const std::vector<std::string>& path, const Value& v) {
    return {label_of(v), {{path, document_.get(), v.node_id()}}};
  }

  void read_map(const Map& axes, const std::string& name, const Value& v, Axis& axis) {
    const Map any(v, Map::any_key);
    if (any.has("zip")) return read_zip(Map(v, {"zip"}).at("zip"), axis);
    if (any.has("choices")) return read_choices(Map(v, {"choices"}).at("choices"), axis);
    read_range(path_of(axes, name), Map(v, {"from", "to", "step", "times"}), axis);
  }

  // Keys that move together: place i takes the i-th value of each list.
  void read_zip(const Value& v, Axis& axis) {
    const Map lists(v, Map::any_key);
    size_t length = 0;
    for (const std::string& key : lists.keys()) {
      const std::vector<std::string> path = path_of(lists, key);
      const std::vector<Value> values = lists.at(key).list("values", 1);
      if (length == 0) {
        length = values.size();
        axis.places.resize(length);
      }
      if (values.size() != length)
        lists.at(key).fail(fmt::format("{} values beside lists of {}", values.size(), length),
                           "zipped keys move together: all lists are as long");
      for (size_t i = 0; i < length; ++i) {
        AxisPlace& place = axis.places[i];
        place.label += (place.label.empty() ? "" : ", ") + label_of(values[i]);
        place.settings.push_back({path, document_.get(), values[i].node_id()});
      }
    }
    if (length == 0) v.fail("no keys are given");
  }

  // Named alternatives, each a map of keys and values.
  void read_choices(const Value& v, Axis& axis) {
    const Map choices(v, Map::any_key);
    for (const std::string& label : choices.keys()) {
      AxisPlace& place = axis.places.emplace_back();
      place.label = printable(label);
      const Value chosen = choices.at(label);
      if (chosen.is_null()) continue;  // the scenario as it is
      const Map sets(chosen, Map::any_key);
      for (const std::string& key : sets.keys())
        place.settings.push_back({path_of(sets, key), document_.get(), sets.at(key).node_id()});
    }
    if (axis.places.empty()) v.fail("no choices are given");
  }

  void read_range(const std::vector<std::string>& path, const Map& map, Axis& axis) {
    const double from = map.at("from").decimal(-kLargest, kLargest);
    const double to = map.at("to").decimal(from, kLargest, "the end of the range, which is in it");
    const std::optional<Value> step = map.find("step"), times = map.find("times");
    if (step && times) map.fail_key("times", "beside step: a range has one of both");
    const double add = step ? step->decimal(1e-9, kLargest) : times ? 0 : 1;
    const double multiply = times ? times->decimal(1.000001, 1e6) : 1;
    if (times && from <= 0) map.at("from").fail_expected("more than 0, since the range multiplies");
    // Each number is made from its place, so that steps like 0.1 do not add up to something else.
    const double beyond = to + (times ? to * 1e-9 : add * 1e-6);
    double last = from;
    for (int64_t i = 0; i <= kMostPlaces; ++i) {
      const auto n = static_cast<double>(i);
      const double x = times ? from * std::pow(multiply, n) : from + add * n;
      if (x > beyond) break;
      last = x;
      const double rounded = std::round(x);
      const bool whole = std::abs(x - rounded) <= 1e-12 * std::abs(x);
      const std::string text =
          whole ? fmt::format("{}", static_cast<int64_t>(rounded)) : fmt::format("{:.12g}", x);
      numbers_.push_back(std::make_shared<const Document>(number(text, map.value().place())));
      axis.places.push_back({text, {{path, numbers_.back().get(), numbers_.back()->root()}}});
    }
    if (last < to - (times ? to * 1e-9 : add * 1e-6) && axis.places.size() <= kMostPlaces)
      map.at("to").fail(
          fmt::format("the range does not meet its end: its last value before {:.12g} is "
                      "{:.12g}",
                      to, last),
          "both ends of a range are in it");
  }

  static Document number(const std::string& text, const Place& place) {
    TreeBuilder builder(place.file);
    builder.scalar(Node::Kind::scalar, text, false, place.line, place.column);
    return builder.take();
  }

  static void refuse_equal_labels(const Value& v, const Axis& axis) {
    std::vector<std::string> labels;
    for (const AxisPlace& p : axis.places) labels.push_back(p.label);
    std::sort(labels.begin(), labels.end());
    const auto twice = std::adjacent_find(labels.begin(), labels.end());
    if (twice != labels.end())
      v.fail(fmt::format("{} is here twice", quoted_for_message(*twice)),
             "each place of an axis is another one");
  }

  std::shared_ptr<const Document> document_;

 public:
  std::vector<std::shared_ptr<const Document>> numbers_;
};

// One of the two paths leads to the other's value, or into it.
bool overlap(const Setting& a, const Setting& b) {
  const size_t common = std::min(a.path.size(), b.path.size());
  return std::equal(a.path.begin(), a.path.begin() + static_cast<long>(common), b.path.begin());
}

// What two axes set would be one axis's alone, under the labels of both.
void refuse_overlaps(const Map& axes, const std::vector<Axis>& all) {
  const auto refuse = [&](const Axis& axis, const Setting& s, const std::string& by) {
    axes.fail_key(axis.name, fmt::format("{} is set by {} too", fmt::join(s.path, "."), by),
                  "each key is set in one place: zip keys that move together, or merge the axes");
  };
  // Places of an axis mostly set the same keys: each key once.
  std::vector<std::map<std::vector<std::string>, const Setting*>> keys(all.size());
  for (size_t a = 0; a < all.size(); ++a)
    for (const AxisPlace& place : all[a].places)
      for (size_t i = 0; i < place.settings.size(); ++i) {
        for (size_t j = 0; j < i; ++j)
          if (overlap(place.settings[j], place.settings[i]))
            refuse(all[a], place.settings[i], "the same place of the axis");
        keys[a].emplace(place.settings[i].path, &place.settings[i]);
      }
  for (size_t b = 0; b < all.size(); ++b)
    for (size_t a = 0; a < b; ++a)
      for (const auto& [path, s] : keys[b])
        for (const auto& [other, o] : keys[a])
          if (overlap(*o, *s)) refuse(all[b], *s, fmt::format("axis '{}'", all[a].name));
}

bool names_file(std::string_view key) {
  return key == "hf_config" || key == "calibration" || key == "nccl_table" || key == "links";
}

// f(word, file it stands in) for each word of a scenario that names a file.
template <class F>
void for_each_file(const Document& d, uint32_t id, bool names, F&& f) {
  const Node& n = d.node(id);
  if (n.kind == Node::Kind::scalar && names) f(n.text, d.place(id).file);
  for (size_t i = 0; i < n.children.size(); ++i) {
    const bool map = n.kind == Node::Kind::map;
    for_each_file(d, n.children[i], map ? names_file(d.node(n.key_nodes[i]).text) : names, f);
  }
}

std::string digest_of(const std::string& path) {
  constexpr int64_t kLargestNamed = 64 << 20;
  try {
    return short_key(read_whole(path, kLargestNamed));
  } catch (const Error&) {
    return "";  // the scenario that names it says why
  }
}

}  // namespace

// A value may be looked up from the scenario's folder or from that of the file it stands in.
void Study::digest_files() {
  const auto digest = [&](const std::string& word, const std::string& file) {
    std::string all;
    for (const std::string& from : {base_file_, file})
      if (const std::optional<std::string> path = file_beside(word, from))
        all += digest_of(*path) + ' ';
    if (!all.empty()) files_[word] = all;
  };
  for_each_file(*base_, base_->root(), false, digest);
  for (const Axis& axis : axes_)
    for (const AxisPlace& place : axis.places)
      for (const Setting& s : place.settings)
        if (s.from) for_each_file(*s.from, s.node, names_file(s.path.back()), digest);
  for (const auto& [word, digests] : files_) text_ += "\n" + word + ": " + digests;
}

bool Study::Condition::matches(const std::vector<Axis>& axes,
                               const std::vector<size_t>& places) const {
  for (size_t a = 0; a < axes.size(); ++a) {
    if (labels[a].empty()) continue;
    const std::string& label = axes[a].places[places[a]].label;
    if (std::find(labels[a].begin(), labels[a].end(), label) == labels[a].end()) return false;
  }
  return true;
}

std::vector<size_t> Study::places(int64_t point) const {
  std::vector<size_t> out(axes_.size());
  for (size_t a = axes_.size(); a-- > 0;) {
    const auto n = static_cast<int64_t>(axes_[a].places.size());
    out[a] = static_cast<size_t>(point % n);
    point /= n;
  }
  return out;
}

// Points of the axes from one on depend only on which conditions can still match: each such set is counted once.
int64_t Study::count() const {
  if (skip_.empty() && only_.empty()) return size_;
  std::vector<const Condition*> all;
  for (const Condition& c : skip_) all.push_back(&c);
  for (const Condition& c : only_) all.push_back(&c);
  std::map<std::vector<bool>, int64_t> points{{std::vector<bool>(all.size(), true), 1}};
  for (size_t a = 0; a < axes_.size(); ++a) {
    // Places that no condition tells apart are one.
    std::map<std::vector<bool>, int64_t> places;
    for (const AxisPlace& place : axes_[a].places) {
      std::vector<bool> matching(all.size());
      for (size_t c = 0; c < all.size(); ++c) {
        const std::vector<std::string>& labels = all[c]->labels[a];
        matching[c] =
            labels.empty() || std::find(labels.begin(), labels.end(), place.label) != labels.end();
      }
      ++places[matching];
    }
    std::map<std::vector<bool>, int64_t> next;
    for (const auto& [alive, n] : points)
      for (const auto& [matching, m] : places) {
        std::vector<bool> both(all.size());
        for (size_t c = 0; c < all.size(); ++c) both[c] = alive[c] && matching[c];
        next[both] += n * m;
      }
    points = std::move(next);
  }
  int64_t out = 0;
  for (const auto& [alive, n] : points) {
    const auto begin = alive.begin(), middle = begin + std::ssize(skip_);
    const bool skipped = std::find(begin, middle, true) != middle;
    const bool chosen = only_.empty() || std::find(middle, alive.end(), true) != alive.end();
    if (!skipped && chosen) out += n;
  }
  return out;
}

bool Study::left_out(int64_t point) const {
  if (skip_.empty() && only_.empty()) return false;
  const std::vector<size_t> at = places(point);
  const auto matches = [&](const Condition& c) { return c.matches(axes_, at); };
  if (std::any_of(skip_.begin(), skip_.end(), matches)) return true;
  return !only_.empty() && std::none_of(only_.begin(), only_.end(), matches);
}

Document Study::document(int64_t point) const {
  const std::vector<size_t> at = places(point);
  std::vector<Setting> settings;
  for (size_t a = 0; a < axes_.size(); ++a)
    for (const Setting& s : axes_[a].places[at[a]].settings) settings.push_back(s);
  return overlaid(*base_, settings);
}

std::string Study::key(int64_t point) const {
  constexpr std::string_view kNoMatter[] = {"name", "shardsim"};
  const Document d = document(point);
  std::string text = canonical_text(d, kNoMatter);
  std::set<std::string> named;
  if (!files_.empty())
    for_each_file(d, d.root(), false,
                  [&](const std::string& word, const std::string&) { named.insert(word); });
  for (const std::string& word : named)
    if (const auto at = files_.find(word); at != files_.end()) text += "\n" + at->second;
  return text;
}

Scenario Study::scenario(int64_t point) const {
  return read_scenario(std::make_shared<const Document>(document(point)), base_file_);
}

Study parse_study(std::string_view text, const std::string& file) {
  Study study;
  study.study_ = std::make_shared<const Document>(parse_yaml(text, file));
  const Value root(study.study_);
  if (!root.is_map())
    root.fail("this is no study: expected keys and values",
              "a study begins with 'shardsim_study: 1'");
  const Map map(root, {"shardsim_study", "name", "question", "base", "scenario", "axes", "skip",
                       "only", "require"});
  const Value version = map.at("shardsim_study", "a study begins with 'shardsim_study: 1'");
  if (!version.is_word("1")) version.fail_expected("1, the only version of studies there is");
  study.name_ = std::filesystem::path(file).stem().string();
  if (const std::optional<Value> v = map.find("name")) study.name_ = printable(v->text());
  if (const std::optional<Value> v = map.find("question")) study.question_ = v->text();

  const std::optional<Value> base = map.find("base"), inline_scenario = map.find("scenario");
  if (base && inline_scenario) map.fail_key("scenario", "beside base: a study has one of both");
  if (base) {
    study.base_file_ = find_beside(*base, file);
    study.base_ = std::make_shared<const Document>(
        parse_yaml(read_text_file(study.base_file_), study.base_file_));
  } else {
    const Value scenario = map.at("scenario", "the scenario that is varied, or base: its file");
    study.base_file_ = file;
    study.base_ = std::make_shared<const Document>(part_of(*study.study_, scenario.node_id()));
  }
  if (study.base_->node(study.base_->root()).kind != Node::Kind::map)
    throw Error("this is no scenario: expected keys and values", {study.base_file_},
                "a scenario begins with 'shardsim: 1'");

  const Value axes =
      map.at("axes", "what is varied: a map from keys of the scenario to their values");
  if (!axes.is_map()) axes.fail_expected("a map from keys of the scenario to their values");
  const Map axis_map(axes, Map::any_key);
  AxisReader reader(study.study_);
  for (const std::string& name : axis_map.keys()) {
    study.axes_.push_back(reader.read(axis_map, name));
    const auto n = static_cast<int64_t>(study.axes_.back().places.size());
    if (study.size_ > kMostPoints / n)
      axes.fail(fmt::format("the axes have more than {} points together", kMostPoints),
                "fewer values, or several studies");
    study.size_ *= n;
  }
  if (study.axes_.empty()) axes.fail("no axis is given");
  refuse_overlaps(axis_map, study.axes_);
  study.numbers_ = std::move(reader.numbers_);

  const auto conditions = [&](std::string_view key, std::vector<Study::Condition>& out) {
    const std::optional<Value> v = map.find(key);
    if (!v) return;
    for (const Value& one : v->list("maps from axes to values", 1)) {
      const Map of(one, Map::any_key);
      Study::Condition condition;
      condition.labels.resize(study.axes_.size());
      if (of.keys().empty()) one.fail("no axis is given");
      for (const std::string& name : of.keys()) {
        const auto axis = std::find_if(study.axes_.begin(), study.axes_.end(),
                                       [&](const Axis& a) { return a.name == name; });
        if (axis == study.axes_.end()) of.fail_key(name, "is no axis of this study");
        const Value wanted = of.at(name);
        std::vector<std::string>& labels =
            condition.labels[static_cast<size_t>(axis - study.axes_.begin())];
        for (const Value& w :
             wanted.is_list() ? wanted.list("places of the axis", 1) : std::vector<Value>{wanted}) {
          labels.push_back(label_of(w));
          if (std::none_of(axis->places.begin(), axis->places.end(),
                           [&](const AxisPlace& p) { return p.label == labels.back(); }))
            w.fail(fmt::format("the axis has no place {}", quoted_for_message(labels.back())));
        }
      }
      out.push_back(std::move(condition));
    }
  };
  conditions("skip", study.skip_);
  conditions("only", study.only_);
  if (const std::optional<Value> v = map.find("require")) study.require_ = read_requirements(*v);

  constexpr std::string_view kNoMatter[] = {"name", "question", "require"};
  study.text_ = canonical_text(*study.study_, kNoMatter) + "\n" +
                canonical_text(*study.base_, study.base_->root());
  study.digest_files();
  return study;
}

Study load_study(const std::string& path) { return parse_study(read_text_file(path), path); }

}  // namespace shardsim
