#include "sim/config/reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "sim/base/escape.h"
#include "sim/base/spelling.h"
#include "sim/config/overlay.h"

namespace shardsim {

namespace {

// Bare words that YAML 1.1 or 1.2 reads as a truth value.
bool is_truth_word(std::string_view text) {
  constexpr std::string_view kWords[] = {
      "yes",   "no",  "on", "off", "true", "false", "Yes",   "No", "On", "Off", "True",
      "False", "YES", "NO", "ON",  "OFF",  "TRUE",  "FALSE", "y",  "n",  "Y",   "N"};
  return std::find(std::begin(kWords), std::end(kWords), text) != std::end(kWords);
}

}  // namespace

std::string Value::canonical() const { return canonical_text(*document_, id_); }

std::string quoted_for_message(std::string_view text) {
  constexpr size_t kLongest = 48;
  std::string out = "'";
  for (char c : text) {
    if (out.size() > kLongest) {
      // Not in the middle of a UTF-8 sequence.
      if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) {
        out += "...";
        break;
      }
    }
    out += c;
  }
  return printable(out) + "'";
}

// What JSON escapes YAML reads alike.
std::string yaml_text(std::string_view text) { return '"' + escaped(text) + '"'; }

Value::Value(std::shared_ptr<const Document> document)
    : document_(std::move(document)), id_(document_->root()) {}

bool Value::is_word(std::string_view word) const { return is_scalar() && node().text == word; }

std::string_view Value::word() const {
  return is_scalar() ? std::string_view(node().text) : std::string_view();
}

std::string Value::described() const {
  switch (node().kind) {
    case Node::Kind::null: return "nothing";
    case Node::Kind::list: return "a list";
    case Node::Kind::map: return "a map";
    case Node::Kind::scalar: break;
  }
  return quoted_for_message(node().text);
}

void Value::fail(const std::string& what, const std::string& hint) const {
  throw Error(path_.empty() ? what : path_ + ": " + what, place(), hint);
}

void Value::fail_expected(std::string_view expected, std::string_view hint,
                          std::string_view problem) const {
  std::string what = fmt::format("expected {}, got {}", expected, described());
  if (!problem.empty()) what += fmt::format(", which {}", problem);
  fail(what, std::string(hint));
}

int64_t Value::whole(int64_t low, int64_t high, std::string_view hint) const {
  const std::string expected = fmt::format("a whole number from {} to {}", low, high);
  if (!is_scalar()) fail_expected(expected, hint);
  if (node().quoted) fail_expected(expected, hint, "is text because of its quotes");
  const Parsed<int64_t> parsed = parse_whole(node().text);
  if (!parsed.ok())
    fail_expected(expected, hint, parsed.problem == "is not a number" ? "" : parsed.problem);
  if (parsed.value < low || parsed.value > high) fail_expected(expected, hint);
  return parsed.value;
}

double Value::decimal(double low, double high, std::string_view hint) const {
  const std::string expected = fmt::format("a number from {} to {}", low, high);
  if (!is_scalar()) fail_expected(expected, hint);
  if (node().quoted) fail_expected(expected, hint, "is text because of its quotes");
  const Parsed<double> parsed = parse_decimal(node().text);
  if (!parsed.ok() && node().text.ends_with('%')) {
    const std::string part = node().text.substr(0, node().text.find_last_not_of(" %") + 1);
    if (const Parsed<double> percent = parse_decimal(part); percent.ok())
      fail_expected(expected, fmt::format("a fraction: {:g} for {} %", percent.value / 100, part));
  }
  if (!parsed.ok())
    fail_expected(expected, hint, parsed.problem == "is not a number" ? "" : parsed.problem);
  if (parsed.value < low || parsed.value > high) fail_expected(expected, hint);
  return parsed.value;
}

double Value::quantity(Dimension dimension, double low, double high, std::string_view hint) const {
  std::string expected;
  switch (dimension) {
    case Dimension::bytes: expected = fmt::format("a size from {} to {} bytes", low, high); break;
    case Dimension::rate: expected = fmt::format("a rate from {} to {} GB/s", low, high); break;
    case Dimension::time: expected = fmt::format("a time from {} to {} us", low, high); break;
    case Dimension::flops: expected = fmt::format("a rate from {} to {} TFLOPS", low, high); break;
  }
  if (!is_scalar()) fail_expected(expected, hint);
  const Parsed<double> parsed = parse_quantity(node().text, dimension);
  if (!parsed.ok()) fail_expected(expected, hint, parsed.problem);
  if (parsed.value < low || parsed.value > high) fail_expected(expected, hint);
  return parsed.value;
}

Bytes Value::bytes(Bytes low, Bytes high, std::string_view hint) const {
  const std::string expected =
      fmt::format("a size from {} to {}", format_bytes(low), format_bytes(high));
  if (!is_scalar()) fail_expected(expected, hint);
  const Parsed<Bytes> parsed = parse_bytes(node().text);
  if (!parsed.ok()) fail_expected(expected, hint, parsed.problem);
  if (parsed.value < low || parsed.value > high) fail_expected(expected, hint);
  return parsed.value;
}

bool Value::boolean(std::string_view hint) const {
  if (is_scalar() && !node().quoted) {
    if (node().text == "true") return true;
    if (node().text == "false") return false;
    if (is_truth_word(node().text))
      fail_expected("true or false", hint.empty() ? "write true or false" : hint);
  }
  fail_expected("true or false", hint);
}

std::string Value::text(std::string_view hint) const {
  if (!is_scalar()) fail_expected("text", hint);
  if (!node().quoted && is_truth_word(node().text))
    fail_expected("text", "in YAML this word is true or false; put it in quotes");
  if (node().text.empty()) fail_expected("text", hint);
  return node().text;
}

std::vector<Value> Value::list(std::string_view of, size_t least) const {
  if (!is_list()) fail_expected(fmt::format("a list of {}", of));
  const std::vector<uint32_t>& children = node().children;
  if (children.size() < least) fail(fmt::format("expected a list of {}, got an empty list", of));
  std::vector<Value> out;
  out.reserve(children.size());
  for (size_t i = 0; i < children.size(); ++i)
    out.push_back(Value(document_, children[i], fmt::format("{}[{}]", path_, i)));
  return out;
}

void Value::unknown_choice(const std::vector<std::string_view>& names) const {
  const std::string expected = fmt::format("one of {}", fmt::join(names, ", "));
  const std::string hint = is_scalar() ? spelling_hint(node().text, names, "") : "";
  fail_expected(expected, hint.starts_with("did you mean") ? hint : "");
}

DType Value::dtype() const {
  if (is_scalar())
    if (const std::optional<DType> t = parse_float_dtype(node().text)) return *t;
  fail_expected("one of fp32, bf16, fp16");
}

std::optional<DType> Value::optional_dtype() const {
  if (is_word("none")) return std::nullopt;
  if (is_scalar())
    if (const std::optional<DType> t = parse_float_dtype(node().text)) return t;
  fail_expected("one of fp32, bf16, fp16, none");
}

Map::Map(const Value& value, AnyKey) : value_(value) {
  if (!value_.is_map())
    value_.fail_expected("a map",
                         value_.is_null() ? "write the keys below it, indented, or {}" : "");
}

Map::Map(const Value& value, std::vector<std::string_view> known, std::string_view hint)
    : Map(value, any_key) {
  for (uint32_t key : value_.node().key_nodes) {
    const Node& node = value_.document_->node(key);
    if (std::find(known.begin(), known.end(), node.text) != known.end()) continue;
    const std::string where = value_.path().empty() ? "" : value_.path() + ": ";
    throw Error(fmt::format("{}unknown key {}", where, quoted_for_message(node.text)),
                value_.document_->place(key),
                hint.empty() ? spelling_hint(node.text, known, "keys") : std::string(hint));
  }
}

std::string Map::child_path(std::string_view key) const {
  return value_.path().empty() ? std::string(key) : fmt::format("{}.{}", value_.path(), key);
}

std::vector<std::string> Map::keys() const {
  std::vector<std::string> out;
  for (uint32_t key : value_.node().key_nodes) out.push_back(value_.document_->node(key).text);
  return out;
}

std::optional<size_t> Map::index(std::string_view key) const {
  const std::vector<uint32_t>& keys = value_.node().key_nodes;
  for (size_t i = 0; i < keys.size(); ++i)
    if (value_.document_->node(keys[i]).text == key) return i;
  return std::nullopt;
}

std::optional<Value> Map::find(std::string_view key) const {
  const std::optional<size_t> i = index(key);
  if (!i) return std::nullopt;
  return Value(value_.document_, value_.node().children[*i], child_path(key));
}

Value Map::at(std::string_view key, std::string_view hint) const {
  if (std::optional<Value> value = find(key)) return *value;
  value_.fail(fmt::format("the key '{}' is missing", key), std::string(hint));
}

void Map::fail_key(std::string_view key, const std::string& what, const std::string& hint) const {
  Place place = value_.place();
  if (const std::optional<size_t> i = index(key))
    place = value_.document_->place(value_.node().key_nodes[*i]);
  throw Error(fmt::format("{}: {}", child_path(key), what), place, hint);
}

void Map::cannot_play(std::string_view key) const {
  if (has(key)) fail_key(key, "this build cannot play this key yet");
}

}  // namespace shardsim
