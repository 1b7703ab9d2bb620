#include "sim/study/validation_split.h"

#include <algorithm>

#include "sim/cluster/calibration.h"
#include "sim/config/reader.h"
#include "sim/study/shipped_split.h"

namespace shardsim {

std::string_view name_of(RowRole role) {
  switch (role) {
    case RowRole::fit: return "fit";
    case RowRole::test: return "test";
    case RowRole::apart: return "apart";
    case RowRole::contradictory: return "contradictory";
    case RowRole::unlisted: return "unlisted";
  }
  return "?";
}

ValidationSplit ValidationSplit::parse(std::string_view text, const std::string& file) {
  const Value root(std::make_shared<const Document>(parse_yaml(text, file)));
  const Map map(root, {"shardsim_validation", "row_error", "shared_error", "constants", "sources",
                       "contradictory"});
  const Value version = map.at("shardsim_validation", "the first line of such a file");
  if (!version.is_word("1")) version.fail_expected("1, the only version there is");
  ValidationSplit s;
  s.noise_.row_error = map.at("row_error").decimal(1e-4, 1, "in logarithms: .025 is 2.5 %");
  s.noise_.shared_error = map.at("shared_error").decimal(0, 1, "in logarithms");
  for (const Value& v : map.at("constants").list("constants to fit", 1)) {
    const Map m(v, {"name", "each", "sigma"});
    Constant c;
    c.name = m.at("name").text();
    const auto known = calibration_constants();
    if (std::none_of(known.begin(), known.end(), [&](const auto& k) { return k.name == c.name; }))
      m.at("name").fail_expected("the name of a constant", "sim/cluster/calibration.h lists them");
    if (const std::optional<Value> each = m.find("each"))
      c.each_gpu = each->choice<bool>({{"gpu", true}, {"all", false}});
    c.sigma = m.at("sigma").decimal(1e-6, 10, "spread of the prior, in logarithms");
    s.constants_.push_back(std::move(c));
  }
  for (const Value& v : map.at("sources").list("sources")) {
    const Map m(v, {"group", "models", "role", "why"});
    Source source;
    source.group = m.at("group", "the part of the rows' ids before the dash").text();
    if (const std::optional<Value> models = m.find("models"))
      for (const Value& model : models->list("names of models", 1))
        source.models.push_back(model.text());
    source.part.role = m.at("role").choice<RowRole>(
        {{"fit", RowRole::fit}, {"test", RowRole::test}, {"apart", RowRole::apart}});
    if (source.part.role == RowRole::apart) source.part.why = m.at("why").text();
    s.sources_.push_back(std::move(source));
  }
  if (const std::optional<Value> list = map.find("contradictory"))
    for (const Value& v : list->list("rows")) {
      const Map m(v, {"rows", "why"});
      Rows rows;
      for (const Value& id : m.at("rows").list("ids of rows", 1)) rows.ids.push_back(id.text());
      rows.why = m.at("why").text();
      s.contradictory_.push_back(std::move(rows));
    }
  return s;
}

ValidationSplit ValidationSplit::load(const std::string& path) {
  return parse(read_text_file(path), path);
}

ValidationSplit ValidationSplit::shipped() {
  return parse(kShippedSplit, "analysis/validation/training.yaml");
}

RowPart ValidationSplit::part_of(const MeasuredRow& row) const {
  for (const Rows& r : contradictory_)
    if (std::find(r.ids.begin(), r.ids.end(), row.id) != r.ids.end())
      return {RowRole::contradictory, r.why};
  const std::string group = row.group();
  for (const Source& s : sources_) {
    if (s.group != group) continue;
    if (s.models.empty() ||
        std::find(s.models.begin(), s.models.end(), row.model) != s.models.end())
      return s.part;
  }
  return fits_unlisted_ ? RowPart{RowRole::fit, ""} : RowPart{};
}

std::vector<FitConstant> ValidationSplit::constants(const std::vector<std::string>& gpus) const {
  std::vector<FitConstant> out;
  for (const Constant& c : constants_) {
    if (!c.each_gpu) {
      out.push_back({c.name, "", c.sigma});
      continue;
    }
    for (const std::string& gpu : gpus) out.push_back({c.name, gpu, c.sigma});
  }
  return out;
}

}  // namespace shardsim
