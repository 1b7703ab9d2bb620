#include "sim/study/pickle.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "sim/base/error.h"

namespace shardsim {

int64_t ValueTree::integer(Id v) const {
  const Kind k = kind(v);
  if (k == Kind::real) {
    const double x = nodes_[v].real;
    return x > -9.2e18 && x < 9.2e18 ? static_cast<int64_t>(x) : 0;
  }
  return k == Kind::integer || k == Kind::boolean ? nodes_[v].number : 0;
}

std::string_view ValueTree::text(Id v) const {
  return kind(v) == Kind::text ? std::string_view(texts_[nodes_[v].at]) : std::string_view();
}

const std::vector<ValueTree::Id>& ValueTree::list(Id v) const {
  static const std::vector<Id> none;
  return kind(v) == Kind::list ? lists_[nodes_[v].at] : none;
}

ValueTree::Id ValueTree::get(Id dict, std::string_view key) const {
  if (kind(dict) != Kind::dict) return kAbsent;
  for (const auto& [k, v] : dicts_[nodes_[dict].at])
    if (kind(k) == Kind::text && texts_[nodes_[k].at] == key) return v;
  return kAbsent;
}

ValueTree::Id ValueTree::add_text(std::string text) {
  const Id v = add(Kind::text);
  nodes_[v].at = static_cast<uint32_t>(texts_.size());
  texts_.push_back(std::move(text));
  return v;
}
ValueTree::Id ValueTree::add_list() {
  const Id v = add(Kind::list);
  nodes_[v].at = static_cast<uint32_t>(lists_.size());
  lists_.emplace_back();
  return v;
}
ValueTree::Id ValueTree::add_dict() {
  const Id v = add(Kind::dict);
  nodes_[v].at = static_cast<uint32_t>(dicts_.size());
  dicts_.emplace_back();
  return v;
}

// The pickle machine: a stack of values, marks in it, and a memo.
class PickleReader {
 public:
  using Id = ValueTree::Id;
  using Kind = ValueTree::Kind;

  PickleReader(std::string_view bytes, const std::string& file) : in_(bytes), file_(file) {}

  ValueTree read() {
    while (step()) {
    }
    return std::move(tree_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("the pickle cannot be read: byte {}: {}", at_, what), {file_},
                "snapshots are written by torch.cuda.memory._dump_snapshot(FILE)");
  }
  std::string_view take(size_t n) {
    if (n > in_.size() - at_) fail("the file ends here");
    const std::string_view out = in_.substr(at_, n);
    at_ += n;
    return out;
  }
  uint64_t number(size_t bytes) {  // little-endian
    uint64_t out = 0;
    const std::string_view text = take(bytes);
    for (size_t i = 0; i < bytes; ++i)
      out |= static_cast<uint64_t>(static_cast<unsigned char>(text[i])) << (8 * i);
    return out;
  }
  // Two's complement of any length; must fit 64 bits (addresses do, the high ones as unsigned).
  int64_t long_number(size_t bytes) {
    if (bytes == 0) return 0;
    const std::string_view text = take(bytes);
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    const uint64_t sign = byte(bytes - 1) >= 0x80 ? ~uint64_t{0} : 0;
    for (size_t i = 8; i < bytes; ++i)
      if (byte(i) != (sign & 0xff)) fail("a number of more than 64 bits");
    uint64_t out = sign;
    for (size_t i = 0; i < std::min<size_t>(bytes, 8); ++i) {
      out &= ~(uint64_t{0xff} << (8 * i));
      out |= static_cast<uint64_t>(byte(i)) << (8 * i);
    }
    return static_cast<int64_t>(out);
  }

  void push(Id v) { stack_.push_back(v); }
  Id pop() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() == marks_.back()))
      fail("a value is missing");
    const Id v = stack_.back();
    stack_.pop_back();
    return v;
  }
  Id top(Kind kind) {
    if (stack_.empty() || tree_.kind(stack_.back()) != kind) fail("a container is missing");
    return stack_.back();
  }
  // The values above the last mark.
  std::vector<Id> pop_mark() {
    if (marks_.empty() || marks_.back() > stack_.size()) fail("a mark is missing");
    const auto from = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Id> out(from, stack_.end());
    stack_.erase(from, stack_.end());
    marks_.pop_back();
    return out;
  }
  Id sequence(std::vector<Id> items) {
    const Id v = tree_.add_list();
    tree_.lists_.back() = std::move(items);
    return v;
  }
  void set_items(Id dict, const std::vector<Id>& items) {
    if (items.size() % 2 != 0) fail("a key has no value");
    auto& pairs = tree_.dicts_[tree_.nodes_[dict].at];
    for (size_t i = 0; i < items.size(); i += 2) pairs.emplace_back(items[i], items[i + 1]);
  }
  void remember(uint64_t key) {
    if (stack_.empty()) fail("nothing to remember");
    memo_[key] = stack_.back();
  }
  void recall(uint64_t key) {
    const auto it = memo_.find(key);
    if (it == memo_.end()) fail("a reference to nothing");
    push(it->second);
  }
  void text(uint64_t size) { push(tree_.add_text(std::string(take(size)))); }

  bool step() {
    const auto op = static_cast<unsigned char>(take(1)[0]);
    switch (op) {
      case 0x80: {  // PROTO
        const uint64_t protocol = number(1);
        if (protocol < 2 || protocol > 5) fail(fmt::format("protocol {}", protocol));
        break;
      }
      case 0x95: take(8); break;  // FRAME
      case '.':                   // STOP
        tree_.root_ = pop();
        return false;
      case '(': marks_.push_back(stack_.size()); break;
      case '0': pop(); break;  // POP
      case 'N': push(tree_.add(Kind::none)); break;
      case 0x88: push(tree_.add(Kind::boolean, 1)); break;
      case 0x89: push(tree_.add(Kind::boolean, 0)); break;
      case 'K': push(tree_.add(Kind::integer, static_cast<int64_t>(number(1)))); break;
      case 'M': push(tree_.add(Kind::integer, static_cast<int64_t>(number(2)))); break;
      case 'J': push(tree_.add(Kind::integer, static_cast<int32_t>(number(4)))); break;
      case 0x8a: push(tree_.add(Kind::integer, long_number(number(1)))); break;  // LONG1
      case 0x8b: push(tree_.add(Kind::integer, long_number(number(4)))); break;  // LONG4
      case 'G': {  // BINFLOAT, big-endian
        const uint64_t little = number(8);
        uint64_t bits = 0;
        for (int i = 0; i < 8; ++i) bits |= ((little >> (8 * i)) & 0xff) << (8 * (7 - i));
        push(tree_.add(Kind::real, 0, std::bit_cast<double>(bits)));
        break;
      }
      case 0x8c: text(number(1)); break;  // SHORT_BINUNICODE
      case 'X': text(number(4)); break;   // BINUNICODE
      case 0x8d: text(number(8)); break;  // BINUNICODE8
      case 'C': text(number(1)); break;   // SHORT_BINBYTES
      case 'B': text(number(4)); break;   // BINBYTES
      case ']': push(tree_.add_list()); break;
      case '}': push(tree_.add_dict()); break;
      case ')': push(tree_.add_list()); break;
      case 'l': push(sequence(pop_mark())); break;
      case 't': push(sequence(pop_mark())); break;
      case 'd': {
        const std::vector<Id> items = pop_mark();
        const Id v = tree_.add_dict();
        set_items(v, items);
        push(v);
        break;
      }
      case 0x85: push(sequence({pop()})); break;
      case 0x86: {
        const Id b = pop(), a = pop();
        push(sequence({a, b}));
        break;
      }
      case 0x87: {
        const Id c = pop(), b = pop(), a = pop();
        push(sequence({a, b, c}));
        break;
      }
      case 'a': {
        const Id v = pop();
        tree_.lists_[tree_.nodes_[top(Kind::list)].at].push_back(v);
        break;
      }
      case 'e': {
        const std::vector<Id> items = pop_mark();
        auto& list = tree_.lists_[tree_.nodes_[top(Kind::list)].at];
        list.insert(list.end(), items.begin(), items.end());
        break;
      }
      case 's': {
        const Id v = pop(), k = pop();
        set_items(top(Kind::dict), {k, v});
        break;
      }
      case 'u': {
        const std::vector<Id> items = pop_mark();
        set_items(top(Kind::dict), items);
        break;
      }
      case 'q': remember(number(1)); break;
      case 'r': remember(number(4)); break;
      case 0x94: remember(memo_.size()); break;  // MEMOIZE
      case 'h': recall(number(1)); break;
      case 'j': recall(number(4)); break;
      case 'c':
      case 'R':
      case 0x81:
      case 0x92:
      case 0x93: fail("it holds objects of a class, and a snapshot has plain values only");
      default: fail(fmt::format("operation {:#04x} is not one of a snapshot's", op));
    }
    return true;
  }

  std::string_view in_;
  std::string file_;
  size_t at_ = 0;
  ValueTree tree_;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, Id> memo_;
};

class JsonTreeReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Id = ValueTree::Id;
  using Kind = ValueTree::Kind;

  explicit JsonTreeReader(const std::string& file) : file_(file) {}

  bool null() override { return value(tree_.add(Kind::none)); }
  bool boolean(bool b) override { return value(tree_.add(Kind::boolean, b ? 1 : 0)); }
  bool number_integer(number_integer_t n) override { return value(tree_.add(Kind::integer, n)); }
  bool number_unsigned(number_unsigned_t n) override {
    return value(tree_.add(Kind::integer, static_cast<int64_t>(n)));
  }
  bool number_float(number_float_t x, const string_t&) override {
    return value(tree_.add(Kind::real, 0, x));
  }
  bool string(string_t& s) override { return value(tree_.add_text(std::move(s))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(tree_.add_dict()); }
  bool key(string_t& s) override {
    key_.back() = tree_.add_text(std::move(s));
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(tree_.add_list()); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
    throw Error(fmt::format("the JSON cannot be read: {}", e.what()), {file_});
  }

  ValueTree take() { return std::move(tree_); }

 private:
  bool value(Id v) {
    if (open_.empty()) {
      tree_.root_ = v;
      return true;
    }
    const Id to = open_.back();
    if (tree_.kind(to) == Kind::list)
      tree_.lists_[tree_.nodes_[to].at].push_back(v);
    else
      tree_.dicts_[tree_.nodes_[to].at].emplace_back(key_.back(), v);
    return true;
  }
  bool open(Id v) {
    value(v);
    open_.push_back(v);
    key_.push_back(ValueTree::kAbsent);
    return true;
  }
  bool close() {
    open_.pop_back();
    key_.pop_back();
    return true;
  }

  std::string file_;
  ValueTree tree_;
  std::vector<Id> open_, key_;
};

ValueTree read_pickle(std::string_view bytes, const std::string& file) {
  return PickleReader(bytes, file).read();
}

ValueTree read_json_tree(std::string_view text, const std::string& file) {
  JsonTreeReader reader(file);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

}  // namespace shardsim
