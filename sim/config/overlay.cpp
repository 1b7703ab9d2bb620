#include "sim/config/overlay.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/config/tree_builder.h"

namespace shardsim {

namespace {

class Overlay {
 public:
  Overlay(const Document& base, std::span<const Setting> settings)
      : base_(base), builder_(base.file()) {
    for (const Setting& s : settings) all_.push_back(&s);
  }

  Document part(uint32_t id) {
    copy(base_, id);
    return builder_.take();
  }
  Document build() {
    put(base_.root(), all_, 0);
    return builder_.take();
  }

 private:
  using Settings = std::vector<const Setting*>;

  void copy(const Document& from, uint32_t id) {
    const Node& n = from.node(id);
    builder_.use_file(from.file());
    if (n.kind == Node::Kind::null || n.kind == Node::Kind::scalar) {
      builder_.scalar(n.kind, n.text, n.quoted, n.line, n.column);
      return;
    }
    builder_.open(n.kind, n.line, n.column);
    for (size_t i = 0; i < n.children.size(); ++i) {
      if (n.kind == Node::Kind::map) key(from, n.key_nodes[i]);
      copy(from, n.children[i]);
    }
    builder_.close();
  }

  void key(const Document& from, uint32_t id) {
    const Node& k = from.node(id);
    builder_.use_file(from.file());
    builder_.scalar(Node::Kind::scalar, k.text, k.quoted, k.line, k.column);
  }

  // The base's node where `settings` lead to it or below it; `depth` names of their paths are walked.
  void put(uint32_t id, const Settings& settings, size_t depth) {
    for (auto s = settings.rbegin(); s != settings.rend(); ++s)
      if ((*s)->path.size() == depth) return copy(*(*s)->from, (*s)->node);
    if (settings.empty()) return copy(base_, id);
    const Node& n = base_.node(id);
    if (n.kind != Node::Kind::map && n.kind != Node::Kind::null) {
      const Settings values = with_value(settings);
      if (values.empty()) return copy(base_, id);
      const Setting& s = *values.front();
      throw Error(fmt::format("{}: the scenario's value there is no map", joined(s, depth)),
                  s.from->place(s.node), "an axis names a key by its whole path");
    }
    builder_.use_file(base_.file());
    builder_.open(Node::Kind::map, n.line, n.column);
    std::vector<std::string> known;
    for (size_t i = 0; i < n.children.size(); ++i) {
      const std::string& name = base_.node(n.key_nodes[i]).text;
      known.push_back(name);
      const Settings below = of(settings, depth, name);
      if (goes(below, depth + 1)) continue;
      key(base_, n.key_nodes[i]);
      put(n.children[i], below, depth + 1);
    }
    const Settings values = with_value(settings);
    for (const Setting* s : values)
      if (std::find(known.begin(), known.end(), s->path[depth]) == known.end()) {
        known.push_back(s->path[depth]);
        make(of(values, depth, s->path[depth]), depth);
      }
    builder_.close();
  }

  // A key that the base has not.
  void make(const Settings& settings, size_t depth) {
    const Setting& s = *settings.back();
    const Node& value = s.from->node(s.node);
    builder_.use_file(s.from->file());
    builder_.scalar(Node::Kind::scalar, s.path[depth], false, value.line, value.column);
    if (s.path.size() == depth + 1) return copy(*s.from, s.node);
    builder_.open(Node::Kind::map, value.line, value.column);
    std::vector<std::string> known;
    for (const Setting* t : settings)
      if (t->path.size() > depth + 1 &&
          std::find(known.begin(), known.end(), t->path[depth + 1]) == known.end()) {
        known.push_back(t->path[depth + 1]);
        make(of(settings, depth + 1, t->path[depth + 1]), depth + 1);
      }
    builder_.close();
  }

  static Settings of(const Settings& settings, size_t depth, const std::string& name) {
    Settings out;
    for (const Setting* s : settings)
      if (s->path.size() > depth && s->path[depth] == name) out.push_back(s);
    return out;
  }
  static Settings with_value(const Settings& settings) {
    Settings out;
    std::copy_if(settings.begin(), settings.end(), std::back_inserter(out),
                 [](const Setting* s) { return s->from != nullptr; });
    return out;
  }
  // The last word about the value at this depth is that there is none.
  static bool goes(const Settings& settings, size_t depth) {
    const auto last = std::find_if(settings.rbegin(), settings.rend(),
                                   [&](const Setting* s) { return s->path.size() == depth; });
    return last != settings.rend() && (*last)->from == nullptr;
  }
  static std::string joined(const Setting& s, size_t depth) {
    return fmt::format("{}",
                       fmt::join(s.path.begin(), s.path.begin() + static_cast<long>(depth), "."));
  }

  const Document& base_;
  TreeBuilder builder_;
  Settings all_;
};

void write(const Document& d, uint32_t id, std::string& out) {
  const Node& n = d.node(id);
  switch (n.kind) {
    case Node::Kind::null: out += '~'; return;
    case Node::Kind::scalar:
      out += n.quoted ? '"' : '\'';
      out += n.text;
      out += n.quoted ? '"' : '\'';
      return;
    case Node::Kind::list:
      out += '[';
      for (uint32_t c : n.children) {
        write(d, c, out);
        out += ',';
      }
      out += ']';
      return;
    case Node::Kind::map: break;
  }
  std::vector<size_t> order(n.children.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto name = [&](size_t i) -> const std::string& { return d.node(n.key_nodes[i]).text; };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return name(a) < name(b); });
  out += '{';
  for (size_t i : order) {
    out += name(i);
    out += ':';
    write(d, n.children[i], out);
    out += ',';
  }
  out += '}';
}

}  // namespace

std::vector<std::string> key_path(std::string_view path) {
  std::vector<std::string> out(1);
  for (const char c : path)
    if (c == '.')
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

Document overlaid(const Document& base, std::span<const Setting> settings) {
  return Overlay(base, settings).build();
}

Document part_of(const Document& document, uint32_t node) {
  return Overlay(document, {}).part(node);
}

std::string canonical_text(const Document& document, uint32_t node) {
  std::string out;
  write(document, node, out);
  return out;
}

std::string canonical_text(const Document& document, std::span<const std::string_view> without) {
  const Node& root = document.node(document.root());
  std::vector<std::string> parts;
  for (size_t i = 0; i < root.children.size(); ++i) {
    const std::string& key = document.node(root.key_nodes[i]).text;
    if (std::find(without.begin(), without.end(), key) != without.end()) continue;
    parts.push_back(key + ':' + canonical_text(document, root.children[i]));
  }
  std::sort(parts.begin(), parts.end());
  return fmt::format("{}", fmt::join(parts, ","));
}

}  // namespace shardsim
