#include "sim/config/document.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/input_file.h"
#include "sim/config/tree_builder.h"

namespace shardsim {

uint32_t TreeBuilder::scalar(Node::Kind kind, std::string text, bool quoted, int line, int column) {
  const uint32_t id = static_cast<uint32_t>(document_.nodes_.size());
  Node& node = document_.nodes_.emplace_back();
  node.kind = kind;
  node.file = file_;
  node.quoted = quoted;
  node.line = line;
  node.column = column;
  node.text = std::move(text);
  if (expects_key()) {
    Open& map = open_.back();
    const std::string& key = document_.nodes_[id].text;
    if (!map.keys.insert(key).second) {
      int first = 0;
      for (uint32_t k : document_.nodes_[map.node].key_nodes)
        if (document_.nodes_[k].text == key) first = document_.nodes_[k].line;
      fail(fmt::format("the key '{}' is here twice", key), line, column,
           fmt::format("it was first given on line {}", first));
    }
    document_.nodes_[map.node].key_nodes.push_back(id);
    map.has_key = true;
  } else {
    place_child(id, line, column);
  }
  return id;
}

uint32_t TreeBuilder::open(Node::Kind kind, int line, int column) {
  const uint32_t id = static_cast<uint32_t>(document_.nodes_.size());
  Node& node = document_.nodes_.emplace_back();
  node.kind = kind;
  node.file = file_;
  node.line = line;
  node.column = column;
  Open& open = open_.emplace_back();
  open.node = id;
  open.is_map = kind == Node::Kind::map;
  return id;
}

void TreeBuilder::use_file(const std::string& file) {
  std::vector<std::string>& files = document_.files_;
  const auto at = std::find(files.begin(), files.end(), file);
  file_ = static_cast<uint16_t>(at - files.begin());
  if (at == files.end()) files.push_back(file);
}

void TreeBuilder::close() {
  const uint32_t id = open_.back().node;
  open_.pop_back();
  place_child(id, document_.nodes_[id].line, document_.nodes_[id].column);
}

void TreeBuilder::alias(uint32_t node, int line, int column) { place_child(node, line, column); }

bool TreeBuilder::is_open(uint32_t node) const {
  return std::any_of(open_.begin(), open_.end(), [&](const Open& o) { return o.node == node; });
}

void TreeBuilder::place_child(uint32_t id, int line, int column) {
  if (open_.empty()) {
    document_.root_ = id;
    return;
  }
  Open& parent = open_.back();
  Node& node = document_.nodes_[parent.node];
  node.children.push_back(id);
  node.size += document_.nodes_[id].size;
  if (node.size > largest_)
    fail(fmt::format("the file expands to more than {} values", largest_), line, column);
  parent.has_key = false;
}

void TreeBuilder::fail(const std::string& what, int line, int column,
                       const std::string& hint) const {
  throw Error(what, {file(), line, column}, hint);
}

namespace {

// The length of the UTF-8 sequence at the start of text, 0 if it is not one (RFC 3629).
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned b = byte(0);
  const size_t length = b < 0x80   ? 1
                        : b < 0xC2 ? 0
                        : b < 0xE0 ? 2
                        : b < 0xF0 ? 3
                        : b < 0xF5 ? 4
                                   : 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  if ((b == 0xE0 && byte(1) < 0xA0) || (b == 0xED && byte(1) > 0x9F)) return 0;
  if ((b == 0xF0 && byte(1) < 0x90) || (b == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

void require_text(std::string_view text, const std::string& path) {
  int line = 1, column = 1;
  for (size_t i = 0; i < text.size();) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    const size_t length = utf8_length(text.substr(i));
    const bool control = c < 0x20 && c != '\n' && c != '\t' && c != '\r';
    if (length == 0 || control || c == 0x7F)
      throw Error(fmt::format("this is not a text file: byte 0x{:02x} is no UTF-8 text", c),
                  {path, line, column});
    if (c == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
    i += length;
  }
}

}  // namespace

std::string read_text_file(const std::string& path, int64_t largest) {
  std::string text = read_whole(path, largest);
  // What Windows' editors put in front.
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  require_text(text, path);
  return text;
}

}  // namespace shardsim
