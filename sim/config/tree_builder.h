// What the YAML and the JSON parser share: a Document is built from a stream of events, and
// duplicate keys and trees that are too large are refused on the way.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "sim/config/document.h"

namespace shardsim {

class TreeBuilder {
 public:
  explicit TreeBuilder(std::string file, int64_t largest = kLargestTree) : largest_(largest) {
    document_.files_.push_back(std::move(file));
  }

  // Inside a map, keys and values alternate; the caller may ask which is next.
  bool expects_key() const {
    return !open_.empty() && open_.back().is_map && !open_.back().has_key;
  }
  // Returns the node's id.
  uint32_t scalar(Node::Kind kind, std::string text, bool quoted, int line, int column);
  uint32_t open(Node::Kind kind, int line, int column);
  void close();
  void alias(uint32_t node, int line, int column);
  bool is_open(uint32_t node) const;

  size_t depth() const { return open_.size(); }
  const std::string& file() const { return document_.files_[file_]; }
  // Of the nodes from here on.
  void use_file(const std::string& file);
  Document take() { return std::move(document_); }
  [[noreturn]] void fail(const std::string& what, int line, int column,
                         const std::string& hint = {}) const;

 private:
  struct Open {
    uint32_t node = 0;
    bool is_map = false;
    bool has_key = false;
    std::unordered_set<std::string> keys;
  };
  void place_child(uint32_t node, int line, int column);

  int64_t largest_;  // nodes
  uint16_t file_ = 0;
  Document document_;
  std::vector<Open> open_;
};

}  // namespace shardsim
