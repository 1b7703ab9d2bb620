// Typed, strict access to a Document. Every failure is an Error with the value's place, its full key
// path, what was expected and what came:
//   a.yaml:12:16: error: training.micro_batch: expected a whole number from 1 to 1048576, got 'two'
//     hint: sequences per data-parallel rank in one forward pass
// Numbers and true/false must not be in quotes; text may be either way, but a bare word that YAML
// itself reads as something else (no, null, ~) must be quoted to be text.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/quantity.h"
#include "sim/config/document.h"

namespace shardsim {

class Value {
 public:
  explicit Value(std::shared_ptr<const Document> document);

  const std::string& path() const { return path_; }
  Place place() const { return document_->place(id_); }
  bool is_null() const { return node().kind == Node::Kind::null; }
  bool is_scalar() const { return node().kind == Node::Kind::scalar; }
  bool is_list() const { return node().kind == Node::Kind::list; }
  bool is_map() const { return node().kind == Node::Kind::map; }
  uint32_t node_id() const { return id_; }
  // What it says, whatever it is (overlay.h).
  std::string canonical() const;
  // The characters of a scalar as they stand; empty for anything else.
  std::string_view word() const;
  bool is_word(std::string_view word) const;

  int64_t whole(int64_t low, int64_t high, std::string_view hint = {}) const;
  double decimal(double low, double high, std::string_view hint = {}) const;
  // In the units of Dimension (sim/base/quantity.h).
  double quantity(Dimension dimension, double low, double high, std::string_view hint = {}) const;
  Bytes bytes(Bytes low, Bytes high, std::string_view hint = {}) const;
  bool boolean(std::string_view hint = {}) const;
  std::string text(std::string_view hint = {}) const;
  std::vector<Value> list(std::string_view of, size_t least = 0) const;

  template <class T>
  T choice(std::initializer_list<std::pair<std::string_view, T>> choices) const {
    std::vector<std::string_view> names;
    for (const auto& [name, value] : choices) {
      if (is_word(name)) return value;
      names.push_back(name);
    }
    unknown_choice(names);
  }
  // fp32, bf16 or fp16; no value for "none" where that is allowed.
  DType dtype() const;
  std::optional<DType> optional_dtype() const;

  // path: what
  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const;
  // path: expected <expected>, got <this>
  [[noreturn]] void fail_expected(std::string_view expected, std::string_view hint = {},
                                  std::string_view problem = {}) const;

 private:
  friend class Map;
  Value(std::shared_ptr<const Document> document, uint32_t id, std::string path)
      : document_(std::move(document)), id_(id), path_(std::move(path)) {}
  const Node& node() const { return document_->node(id_); }
  std::string described() const;
  [[noreturn]] void unknown_choice(const std::vector<std::string_view>& names) const;

  std::shared_ptr<const Document> document_;
  uint32_t id_ = 0;
  std::string path_;
};

// A map whose keys are all known beforehand; the first other key is an Error with the nearest known
// one as a hint.
class Map {
 public:
  // Every key is accepted: for a look at what kind of map it is, before it is read.
  enum AnyKey { any_key };
  Map(const Value& value, AnyKey);
  Map(const Value& value, std::vector<std::string_view> known, std::string_view hint = {});
  Map(const Value& value, std::initializer_list<std::string_view> known)
      : Map(value, std::vector<std::string_view>(known)) {}

  const Value& value() const { return value_; }
  bool empty() const { return value_.node().children.empty(); }
  std::vector<std::string> keys() const;  // in the order of the file
  bool has(std::string_view key) const { return find(key).has_value(); }
  std::optional<Value> find(std::string_view key) const;
  Value at(std::string_view key, std::string_view hint = {}) const;
  // An Error at the key, whatever its value.
  [[noreturn]] void fail_key(std::string_view key, const std::string& what,
                             const std::string& hint = {}) const;
  // "this build cannot play <path> yet" if the key is there.
  void cannot_play(std::string_view key) const;

 private:
  std::string child_path(std::string_view key) const;
  std::optional<size_t> index(std::string_view key) const;

  Value value_;
};

// The value as it stands in messages: in quotes, short, and with nothing unprintable.
std::string quoted_for_message(std::string_view text);

// The value as YAML reads it back, in quotes: a"b is "a\"b".
std::string yaml_text(std::string_view text);

}  // namespace shardsim
