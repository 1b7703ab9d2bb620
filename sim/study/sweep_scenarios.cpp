#include "sim/study/sweep_scenarios.h"

#include <filesystem>
#include <nlohmann/json.hpp>

namespace shardsim {

namespace {

using Json = nlohmann::ordered_json;

Json value_of(const Document& d, uint32_t id) {
  const Node& n = d.node(id);
  switch (n.kind) {
    case Node::Kind::null: return nullptr;
    case Node::Kind::scalar:
      if (!n.quoted) return n.text;
      return {{"q", n.text}};
    case Node::Kind::list: {
      Json out = Json::array();
      for (const uint32_t c : n.children) out.push_back(value_of(d, c));
      return out;
    }
    case Node::Kind::map: break;
  }
  Json pairs = Json::array();
  for (size_t i = 0; i < n.children.size(); ++i)
    pairs.push_back(Json::array({d.node(n.key_nodes[i]).text, value_of(d, n.children[i])}));
  return {{"m", std::move(pairs)}};
}

}  // namespace

std::string scenario_parts(const Study& study) {
  Json out;
  out["file"] = std::filesystem::path(study.base_file()).filename().string();
  out["base"] = value_of(study.base(), study.base().root());
  out["axes"] = Json::array();
  for (const Axis& axis : study.axes()) {
    Json places = Json::array();
    for (const AxisPlace& place : axis.places) {
      Json settings = Json::array();
      for (const Setting& s : place.settings)
        settings.push_back(Json::array({s.path, value_of(*s.from, s.node)}));
      places.push_back({{"label", place.label}, {"settings", std::move(settings)}});
    }
    out["axes"].push_back({{"name", axis.name}, {"places", std::move(places)}});
  }
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace shardsim
