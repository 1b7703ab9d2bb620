#include "sim/config/csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>

#include "sim/base/spelling.h"
#include "sim/config/document.h"

namespace shardsim {
namespace {

// One pass over the text; a record ends at a line break outside of quotes.
class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  // False at the end of the text.
  bool next(CsvRow& row) {
    row.fields.clear();
    while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) step();
    if (at_ >= text_.size()) return false;
    row.line = line_;
    for (;;) {
      row.fields.push_back(field());
      if (at_ >= text_.size() || text_[at_] != ',') return true;
      step();
    }
  }

 private:
  void step() {
    if (text_[at_] == '\n') ++line_;
    ++at_;
  }

  std::string field() {
    std::string out;
    if (at_ < text_.size() && text_[at_] == '"') return quoted();
    while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n' && text_[at_] != '\r') {
      if (text_[at_] == '"')
        throw Error("a quote inside a field that does not begin with one", {file_, line_, 0},
                    "put the whole field in quotes and write each quote in it twice");
      out += text_[at_];
      step();
    }
    return out;
  }

  std::string quoted() {
    const int opened = line_;
    std::string out;
    step();
    for (;;) {
      if (at_ >= text_.size()) throw Error("a field in quotes is never closed", {file_, opened, 0});
      const char c = text_[at_];
      step();
      if (c != '"') {
        out += c;
      } else if (at_ < text_.size() && text_[at_] == '"') {
        out += '"';
        step();
      } else {
        break;
      }
    }
    if (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n' && text_[at_] != '\r')
      throw Error("text behind the closing quote of a field", {file_, line_, 0});
    return out;
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::optional<size_t> CsvTable::column(std::string_view name) const {
  for (size_t i = 0; i < header.size(); ++i)
    if (header[i] == name) return i;
  return std::nullopt;
}

size_t CsvTable::need(std::string_view name) const {
  if (const std::optional<size_t> i = column(name)) return *i;
  throw Error(fmt::format("the table has no column '{}'", name), {file, 1, 0},
              fmt::format("its columns are {}", fmt::join(header, ", ")));
}

CsvTable parse_csv(std::string_view text, const std::string& file) {
  CsvTable table;
  table.file = file;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  Reader reader(text, file);
  CsvRow row;
  if (!reader.next(row)) throw Error("the table is empty", {file}, "its first line names columns");
  table.header = row.fields;
  for (size_t i = 0; i < table.header.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (table.header[i] == table.header[j])
        throw Error(fmt::format("the column '{}' is there twice", table.header[i]), {file, 1, 0});
  while (reader.next(row)) {
    if (row.fields.size() != table.header.size())
      throw Error(fmt::format("expected {} fields as in the header, got {}", table.header.size(),
                              row.fields.size()),
                  {file, row.line, 0});
    table.rows.push_back(row);
  }
  return table;
}

CsvTable load_csv(const std::string& path) {
  return parse_csv(read_text_file(path, kLargestTable), path);
}

std::optional<double> number_of(const CsvTable& table, const CsvRow& row, size_t column) {
  const std::string& text = row.fields[column];
  if (text.empty()) return std::nullopt;
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
    throw Error(fmt::format("{}: expected a number, got '{}'", table.header[column], text),
                table.place(row));
  return value;
}

}  // namespace shardsim
