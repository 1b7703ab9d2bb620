#include "sim/config/settings.h"

#include "sim/config/document.h"

namespace shardsim {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

std::string written(const Document& d, uint32_t id) {
  const Node& n = d.node(id);
  std::string out;
  switch (n.kind) {
    case Node::Kind::null: return "null";
    case Node::Kind::scalar: return n.quoted ? '"' + n.text + '"' : n.text;
    case Node::Kind::list:
      for (const uint32_t c : n.children) out += (out.empty() ? "" : ", ") + written(d, c);
      return "[" + out + "]";
    case Node::Kind::map:
      for (size_t i = 0; i < n.children.size(); ++i)
        out += (out.empty() ? "" : ", ") + d.node(n.key_nodes[i]).text + ": " +
               written(d, n.children[i]);
      return "{" + out + "}";
  }
  return out;
}

void flatten(const Document& d, uint32_t id, const std::string& path, Settings& out) {
  const Node& n = d.node(id);
  if (n.kind != Node::Kind::map || n.children.empty()) {
    out.emplace_back(path, written(d, id));
    return;
  }
  for (size_t i = 0; i < n.children.size(); ++i) {
    const std::string& key = d.node(n.key_nodes[i]).text;
    if (path.empty() && (key == "name" || key == "shardsim")) continue;
    flatten(d, n.children[i], path.empty() ? key : path + "." + key, out);
  }
}

}  // namespace

Settings settings_in(const std::string& path) {
  const Document d = parse_yaml(read_text_file(path), path);
  Settings out;
  flatten(d, d.root(), "", out);
  return out;
}

}  // namespace shardsim
