#include <fmt/format.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <sstream>
#include <unordered_map>

#include "sim/config/tree_builder.h"

namespace shardsim {
namespace {

// yaml-cpp's marks count from 0.
int line_of(const YAML::Mark& mark) { return mark.line + 1; }
int column_of(const YAML::Mark& mark) { return mark.column + 1; }

class Handler : public YAML::EventHandler {
 public:
  explicit Handler(TreeBuilder& tree) : tree_(tree) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0)
      fail("a second document starts here", mark, "one file holds one document; remove '---'");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (tree_.expects_key()) fail("this key is empty", mark);
    remember(anchor, tree_.scalar(Node::Kind::null, "", false, line_of(mark), column_of(mark)));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (tree_.expects_key()) fail("an alias cannot be a key here", mark);
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end() || tree_.is_open(found->second))
      fail("this alias refers to the value that contains it", mark);
    tree_.alias(found->second, line_of(mark), column_of(mark));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const bool quoted = tag == "!";
    if (!quoted) refuse_tag(tag, mark);
    if (tree_.expects_key() && value == "<<")
      fail("the merge key '<<' is not used here", mark, "write the keys out");
    remember(anchor,
             tree_.scalar(Node::Kind::scalar, value, quoted, line_of(mark), column_of(mark)));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(Node::Kind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { tree_.close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(Node::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { tree_.close(); }

  int documents() const { return documents_; }

 private:
  void open(Node::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    if (tree_.expects_key()) fail("a key must be one word, not a map or a list", mark);
    refuse_tag(tag, mark);
    remember(anchor, tree_.open(kind, line_of(mark), column_of(mark)));
  }
  void refuse_tag(const std::string& tag, const YAML::Mark& mark) const {
    if (!tag.empty() && tag != "?") fail("tags are not used here", mark);
  }
  void remember(YAML::anchor_t anchor, uint32_t node) {
    if (anchor != 0) anchors_[anchor] = node;
  }
  [[noreturn]] void fail(const std::string& what, const YAML::Mark& mark,
                         const std::string& hint = {}) const {
    tree_.fail(what, line_of(mark), column_of(mark), hint);
  }

  TreeBuilder& tree_;
  int documents_ = 0;
  std::unordered_map<YAML::anchor_t, uint32_t> anchors_;
};

void refuse_tabs(std::string_view text, const std::string& file) {
  int line = 1;
  for (size_t i = 0; i < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', i), text.size());
    const std::string_view row = text.substr(i, end - i);
    const size_t first = row.find_first_not_of(" \t\r");
    const size_t tab = row.find('\t');
    if (first != std::string_view::npos && row[first] != '#' && tab < first)
      throw Error("a tab indents this line", {file, line, static_cast<int>(tab) + 1},
                  "YAML wants spaces");
    i = end + 1;
  }
}

}  // namespace

Document parse_yaml(std::string_view text, const std::string& file) {
  refuse_tabs(text, file);
  TreeBuilder tree(file);
  Handler handler(tree);
  std::istringstream in{std::string(text)};
  try {
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(handler)) continue;
  } catch (const YAML::DeepRecursion& e) {
    throw Error("nested too deep", {file, line_of(e.mark), column_of(e.mark)});
  } catch (const YAML::Exception& e) {
    throw Error(fmt::format("not valid YAML: {}", e.msg),
                {file, line_of(e.mark), column_of(e.mark)});
  }
  if (handler.documents() == 0) throw Error("the file is empty", {file});
  return tree.take();
}

}  // namespace shardsim
