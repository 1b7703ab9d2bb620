#include "sim/cli/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/escape.h"
#include "sim/report/text.h"

namespace shardsim {
namespace {

std::string shown(const Cell& cell, int decimals) {
  if (const auto* text = std::get_if<std::string>(&cell)) return printable(*text);
  if (const auto* whole = std::get_if<int64_t>(&cell)) {
    std::string digits = fmt::format("{}", *whole);
    const size_t sign = digits[0] == '-' ? 1 : 0;
    if (digits.size() - sign > 3)
      for (size_t i = digits.size(); i > sign + 3;) digits.insert(i -= 3, ",");
    return digits;
  }
  if (const auto* number = std::get_if<double>(&cell))
    return fmt::format("{:.{}f}", *number, decimals);
  return "-";
}

nlohmann::ordered_json as_json(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* whole = std::get_if<int64_t>(&cell)) return *whole;
  if (const auto* number = std::get_if<double>(&cell)) return *number;
  return nullptr;
}

std::string as_csv(const Cell& cell) {
  const auto* text = std::get_if<std::string>(&cell);
  if (text == nullptr)
    return std::holds_alternative<std::monostate>(cell) ? "" : as_json(cell).dump();
  return csv_field(*text);
}

// Characters on a screen, for text that is UTF-8.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

void Table::add(std::vector<Cell> row) {
  SHARDSIM_ASSERT(row.size() == columns_.size(), "a row has one cell for each column");
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::vector<std::string> lines(rows_.size() + 1);
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].title.empty()) continue;
    std::vector<std::string> cells{columns_[c].title};
    bool right = !rows_.empty();
    for (const std::vector<Cell>& row : rows_) {
      cells.push_back(shown(row[c], columns_[c].decimals));
      right = right && !std::holds_alternative<std::string>(row[c]);
    }
    size_t width = 0;
    for (const std::string& cell : cells) width = std::max(width, width_of(cell));
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string padding(width - width_of(cells[i]), ' ');
      if (c > 0) lines[i] += "  ";
      lines[i] += right ? padding + cells[i] : cells[i] + padding;
    }
  }
  std::string out;
  for (std::string& line : lines) {
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string Table::json() const {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const std::vector<Cell>& row : rows_) {
    nlohmann::ordered_json object;
    for (size_t c = 0; c < columns_.size(); ++c) object[columns_[c].key] = as_json(row[c]);
    out.push_back(std::move(object));
  }
  return out.dump(2) + "\n";
}

std::string Table::csv() const {
  std::string out;
  for (size_t c = 0; c < columns_.size(); ++c) out += (c > 0 ? "," : "") + as_csv(columns_[c].key);
  out += "\n";
  for (const std::vector<Cell>& row : rows_) {
    for (size_t c = 0; c < columns_.size(); ++c) out += (c > 0 ? "," : "") + as_csv(row[c]);
    out += "\n";
  }
  return out;
}

std::string Table::in(Format format) const {
  switch (format) {
    case Format::table: return text();
    case Format::json: return json();
    case Format::csv: return csv();
  }
  return {};
}

}  // namespace shardsim
