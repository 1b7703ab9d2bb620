#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "sim/config/tree_builder.h"

namespace shardsim {
namespace {

// Reads characters and keeps count, so that a SAX callback knows where the parser stands.
class CountingIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator() = default;
  CountingIterator(const char* at, size_t* count) : at_(at), count_(count) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*count_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ == b.at_;
  }

 private:
  const char* at_ = nullptr;
  size_t* count_ = nullptr;
};

class Handler {
 public:
  using Json = nlohmann::json;
  static constexpr size_t kDeepest = 500;

  Handler(TreeBuilder& tree, std::string_view text, const size_t& count)
      : tree_(tree), text_(text), count_(count) {}

  bool null() { return plain(Node::Kind::null); }
  bool boolean(bool) { return plain(Node::Kind::scalar); }
  bool number_integer(int64_t) { return plain(Node::Kind::scalar); }
  bool number_unsigned(uint64_t) { return plain(Node::Kind::scalar); }
  bool number_float(double, const std::string&) { return plain(Node::Kind::scalar); }
  bool string(std::string& value) { return quoted(value); }
  bool key(std::string& value) { return quoted(value); }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(size_t) { return open(Node::Kind::map); }
  bool start_array(size_t) { return open(Node::Kind::list); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool parse_error(size_t position, const std::string&, const Json::exception& e) {
    const auto [line, column] = place(position > 0 ? position - 1 : 0);
    // "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error ..."
    std::string what = e.what();
    if (const size_t colon = what.find(": "); colon != std::string::npos)
      what.erase(0, colon + 2);
    else if (const size_t bracket = what.find("] "); bracket != std::string::npos)
      what.erase(0, bracket + 2);
    tree_.fail("not valid JSON: " + printable(what), line, column);
  }

 private:
  std::pair<int, int> place(size_t offset) {
    for (; at_ < offset && at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') {
        ++line_;
        line_start_ = at_ + 1;
      }
    }
    return {line_, static_cast<int>(offset - line_start_) + 1};
  }

  // A number, true, false or null ends before the parser's look-ahead; its characters are the text.
  bool plain(Node::Kind kind) {
    const auto inside = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '+' || c == '.';
    };
    size_t end = std::min(count_, text_.size());
    while (end > 0 && !inside(text_[end - 1])) --end;
    size_t begin = end;
    while (begin > 0 && inside(text_[begin - 1])) --begin;
    const auto [line, column] = place(begin);
    std::string value(text_.substr(begin, end - begin));
    if (kind == Node::Kind::null) value.clear();
    tree_.scalar(kind, std::move(value), false, line, column);
    return true;
  }

  bool quoted(const std::string& value) {
    const auto escaped = [&](size_t i) {
      size_t slashes = 0;
      while (i > slashes && text_[i - 1 - slashes] == '\\') ++slashes;
      return slashes % 2 == 1;
    };
    size_t begin = std::min(count_, text_.size()) - 1;  // the closing quote
    do {
      --begin;
    } while (begin > 0 && (text_[begin] != '"' || escaped(begin)));
    const auto [line, column] = place(begin);
    tree_.scalar(Node::Kind::scalar, value, true, line, column);
    return true;
  }

  bool open(Node::Kind kind) {
    const auto [line, column] = place(std::min(count_, text_.size()) - 1);
    if (tree_.depth() >= kDeepest) tree_.fail("nested too deep", line, column);
    tree_.open(kind, line, column);
    return true;
  }

  bool close() {
    tree_.close();
    return true;
  }

  static std::string printable(std::string s) {
    std::replace_if(
        s.begin(), s.end(), [](unsigned char c) { return c < 0x20; }, ' ');
    return s;
  }

  TreeBuilder& tree_;
  std::string_view text_;
  const size_t& count_;
  size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
};

}  // namespace

Document parse_json(std::string_view text, const std::string& file) {
  return parse_json(text, file, kLargestTree);
}

Document parse_json(std::string_view text, const std::string& file, int64_t largest_tree) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    throw Error("the file is empty", {file});
  TreeBuilder tree(file, largest_tree);
  size_t count = 0;
  Handler handler(tree, text, count);
  nlohmann::json::sax_parse(CountingIterator(text.data(), &count),
                            CountingIterator(text.data() + text.size(), &count), &handler);
  return tree.take();
}

}  // namespace shardsim
