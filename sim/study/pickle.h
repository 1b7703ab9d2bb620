// A tree of values read from a pickle or from JSON, enough for PyTorch's memory snapshots. A snapshot
// names the same list of frames a million times: values are numbered, and a list that a pickle refers
// to again is the same value here, so a tree is as large as its file.
//
// Pickles: protocols 2 to 4 with None, booleans, numbers, text, lists, tuples and dicts, which is
// what torch.cuda.memory._dump_snapshot writes. Anything that would run code is refused.
// (Python's pickletools documents the opcodes.)
// Worked example: the bytes 80 02 5d 4b 05 61 2e are [5].
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardsim {

class ValueTree {
 public:
  using Id = uint32_t;
  static constexpr Id kAbsent = UINT32_MAX;
  enum class Kind : uint8_t { none, boolean, integer, real, text, list, dict };

  Id root() const { return root_; }
  Kind kind(Id v) const { return v == kAbsent ? Kind::none : nodes_[v].kind; }
  // 0 and "" where the value is of another kind.
  int64_t integer(Id v) const;
  std::string_view text(Id v) const;
  // Elements of a list or tuple; none of anything else.
  const std::vector<Id>& list(Id v) const;
  // Of a dict with text keys; kAbsent if it has none such.
  Id get(Id dict, std::string_view key) const;

 private:
  friend class PickleReader;
  friend class JsonTreeReader;
  struct Node {
    Kind kind = Kind::none;
    uint32_t at = 0;  // in texts_, lists_ or dicts_
    int64_t number = 0;
    double real = 0;
  };
  Id add(Kind kind, int64_t number = 0, double real = 0) {
    nodes_.push_back({kind, 0, number, real});
    return static_cast<Id>(nodes_.size() - 1);
  }
  Id add_text(std::string text);
  Id add_list();
  Id add_dict();

  std::vector<Node> nodes_;
  std::vector<std::string> texts_;
  std::vector<std::vector<Id>> lists_;
  std::vector<std::vector<std::pair<Id, Id>>> dicts_;
  Id root_ = kAbsent;
};

// Throw Error, naming `file`, at the first byte that is not understood.
ValueTree read_pickle(std::string_view bytes, const std::string& file);
ValueTree read_json_tree(std::string_view text, const std::string& file);

}  // namespace shardsim
