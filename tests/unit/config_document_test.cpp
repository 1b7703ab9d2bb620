#include "sim/config/document.h"

#include <gtest/gtest.h>

#include <fstream>

namespace shardsim {
namespace {

std::string error_of(Document (*parse)(std::string_view, const std::string&),
                     std::string_view text) {
  try {
    parse(text, "f");
  } catch (const Error& e) {
    return e.text();
  }
  return "";
}

// "line:column kind text" of every node, children after their parent.
void describe(const Document& d, uint32_t id, std::string& out) {
  const Node& node = d.node(id);
  constexpr const char* kKinds[] = {"null", "scalar", "list", "map"};
  out += std::to_string(node.line) + ":" + std::to_string(node.column) + " " +
         kKinds[static_cast<int>(node.kind)];
  if (node.kind == Node::Kind::scalar) out += (node.quoted ? " \"" : " ") + node.text;
  out += "\n";
  for (size_t i = 0; i < node.children.size(); ++i) {
    if (node.kind == Node::Kind::map) describe(d, node.key_nodes[i], out);
    describe(d, node.children[i], out);
  }
}

std::string described(const Document& d) {
  std::string out;
  describe(d, d.root(), out);
  return out;
}

TEST(Document, YamlRemembersPlaces) {
  const Document d = parse_yaml("a: 1\nb:\n  - x\n  - 'y'\nc: {d: ~}\n", "f");
  EXPECT_EQ(described(d),
            "1:1 map\n"
            "1:1 scalar a\n1:4 scalar 1\n"
            "2:1 scalar b\n3:3 list\n3:5 scalar x\n4:5 scalar \"y\n"
            "5:1 scalar c\n5:4 map\n5:5 scalar d\n5:8 null\n");
}

TEST(Document, JsonRemembersPlaces) {
  const Document d = parse_json(
      "{\"a\": -1.5e3,\n \"b\\\"\\\\\": [true, null,\"x\"],\n\"c\":{}, \"d\":\"\" }\n", "f");
  EXPECT_EQ(described(d),
            "1:1 map\n"
            "1:2 scalar \"a\n1:7 scalar -1.5e3\n"
            "2:2 scalar \"b\"\\\n2:11 list\n2:12 scalar true\n2:18 null\n2:23 scalar \"x\n"
            "3:1 scalar \"c\n3:5 map\n"
            "3:9 scalar \"d\n3:13 scalar \"\n");
  EXPECT_EQ(described(parse_json("12", "f")), "1:1 scalar 12\n");
  EXPECT_EQ(described(parse_json("\"\"", "f")), "1:1 scalar \"\n");
}

TEST(Document, AliasesShareANode) {
  const Document d = parse_yaml("a: &x [1, 2]\nb: *x\n", "f");
  const Node& root = d.node(d.root());
  EXPECT_EQ(root.children[0], root.children[1]);
  EXPECT_EQ(root.size, 7);  // the map and twice the list of two
}

TEST(Document, WindowsLineEndsAndByteOrderMark) {
  EXPECT_EQ(described(parse_yaml("\xEF\xBB\xBF"
                                 "a: 1\r\nb: 2\r\n",
                                 "f"))
                .substr(0, 8),
            "1:1 map\n");
}

TEST(Document, YamlRefusals) {
  EXPECT_EQ(error_of(parse_yaml, "a: 1\n\tb: 2\n"),
            "f:2:1: error: a tab indents this line\n  hint: YAML wants spaces");
  EXPECT_EQ(error_of(parse_yaml, "a: {b: 1, b: 2}\n"),
            "f:1:11: error: the key 'b' is here twice\n  hint: it was first given on line 1");
  EXPECT_EQ(error_of(parse_yaml, "a: &x {b: *x}\n"),
            "f:1:11: error: this alias refers to the value that contains it");
  EXPECT_EQ(error_of(parse_yaml, ""), "f: error: the file is empty");
  EXPECT_EQ(error_of(parse_yaml, ": 1\n"), "f:1:1: error: this key is empty");
  EXPECT_EQ(error_of(parse_yaml, "a: " + std::string(2000, '[') + std::string(2000, ']')),
            "f:1:4004: error: nested too deep");
  // Tabs that indent nothing.
  EXPECT_EQ(error_of(parse_yaml, "a: 1\n  # \tnote\n\nb: 2\n"), "");
}

TEST(Document, JsonRefusals) {
  EXPECT_EQ(error_of(parse_json, "{\"a\": {\"b\": 1,\n\"b\": 2}}"),
            "f:2:1: error: the key 'b' is here twice\n  hint: it was first given on line 1");
  EXPECT_EQ(error_of(parse_json, "  \n"), "f: error: the file is empty");
  EXPECT_EQ(error_of(parse_json, std::string(100'000, '[')), "f:1:501: error: nested too deep");
  EXPECT_NE(error_of(parse_json, "{\"a\": 1} 2"), "");
  EXPECT_NE(error_of(parse_json, "{\"a\": NaN}"), "");
  EXPECT_NE(error_of(parse_json, "{'a': 1}"), "");
  EXPECT_NE(error_of(parse_json, "{\"a\": 1e999}"), "");
}

// No prefix of a valid file, and no file with one byte replaced, does anything but parse or throw.
TEST(Document, DamagedFilesThrow) {
  const std::string yaml =
      "a: &x [1, {b: 'c'}]\n\"d\": *x\ne: |\n  text\nf: !t g\n? h\n: i\n--- {}\n";
  const std::string json = R"({"a": [1, -2.5e3, true, null, "x\"\\y"], "b": {"c": ""}})";
  for (const std::string& text : {yaml, json}) {
    for (size_t i = 0; i < text.size(); ++i) {
      error_of(parse_yaml, text.substr(0, i));
      error_of(parse_json, text.substr(0, i));
      for (char c :
           {'"', '\'', '{', '}', '[', ']', ':', ',', '&', '*', '\n', '\t', '\\', '0', '-'}) {
        std::string damaged = text;
        damaged[i] = c;
        error_of(parse_yaml, damaged);
        error_of(parse_json, damaged);
      }
    }
  }
}

TEST(Document, TextFiles) {
  const std::string path = testing::TempDir() + "/shardsim_text_file";
  const auto error = [&](std::string_view content) -> std::string {
    std::ofstream(path, std::ios::binary) << content;
    try {
      read_text_file(path);
    } catch (const Error& e) {
      return std::string(e.what()) + " " + std::to_string(e.place().line) + ":" +
             std::to_string(e.place().column);
    }
    return "";
  };
  EXPECT_EQ(error("caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\r\n\t"), "");
  EXPECT_EQ(error(std::string_view("a\nb\0", 4)),
            "this is not a text file: byte 0x00 is no UTF-8 text 2:2");
  for (std::string_view bad : {"\xC3", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80",
                               "\xF5\x80\x80\x80", "\xF4\x90\x80\x80", "\x80", "\xE2\x82"})
    EXPECT_NE(error(bad), "") << bad;
  EXPECT_EQ(error(std::string(kLargestFile, 'a')), "");
  EXPECT_EQ(error(std::string(kLargestFile + 1, 'a')), "the file is larger than 1 MiB 0:0");
}

}  // namespace
}  // namespace shardsim
