// A YAML or JSON file as a tree that remembers where everything stood, read without tolerance.
//
// Both parsers refuse a key that occurs twice in one map, at any depth. The YAML parser (over
// yaml-cpp's events) also refuses tabs in indentation, the merge key <<, tags, keys that are not
// plain words, a second document in the file, and an anchor that contains itself; a finished tree
// may hold an aliased node at several places, and expands to at most kLargestTree nodes.
// Values keep the characters of the file: what is a number is decided by who asks for one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.h"

namespace shardsim {

inline constexpr int64_t kLargestFile = 1 << 20;  // bytes
inline constexpr int64_t kLargestTree = 300'000;  // nodes, aliases counted in full

struct Node {
  enum class Kind : uint8_t { null, scalar, list, map } kind = Kind::null;
  bool quoted = false;  // a scalar in quotes or a block scalar is text and nothing else
  uint16_t file = 0;    // of Document::files_
  int line = 0, column = 0;
  std::string text;                 // scalar
  std::vector<uint32_t> children;   // list: elements; map: values
  std::vector<uint32_t> key_nodes;  // map: one scalar per child
  int64_t size = 1;                 // nodes below and including this one
};

class Document {
 public:
  const std::string& file() const { return files_.front(); }
  const Node& node(uint32_t i) const { return nodes_[i]; }
  uint32_t root() const { return root_; }
  Place place(uint32_t i) const {
    return {files_[nodes_[i].file], nodes_[i].line, nodes_[i].column};
  }

 private:
  friend class TreeBuilder;
  std::vector<std::string> files_;  // a document that is put together has several
  std::vector<Node> nodes_;
  uint32_t root_ = 0;
};

// `file` is for messages only.
Document parse_yaml(std::string_view text, const std::string& file);
Document parse_json(std::string_view text, const std::string& file);
// Of at most so many nodes, for files that programs write.
Document parse_json(std::string_view text, const std::string& file, int64_t largest_tree);

// The contents of a text file, without a byte order mark: valid UTF-8 without control characters, at
// most so many bytes.
// Anything else (missing, a directory, binary) is an Error that says which.
std::string read_text_file(const std::string& path, int64_t largest = kLargestFile);

}  // namespace shardsim
