// Rows of values under names, written as aligned text, as JSON or as CSV (RFC 4180).
// In text, numbers stand right and text left; in JSON a table is a list of objects, its keys being
// the columns' keys.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "sim/cli/command.h"

namespace shardsim {

using Cell = std::variant<std::monostate, std::string, int64_t, double>;  // monostate: null

class Table {
 public:
  struct Column {
    std::string key;    // JSON and CSV
    std::string title;  // text; empty: not shown there
    int decimals = 2;   // of a double, in text
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<Cell> row);
  std::string text() const;
  std::string json() const;
  std::string csv() const;
  std::string in(Format format) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace shardsim
