// A table in comma-separated values (RFC 4180): one header line, fields in quotes where they hold
// commas, quotes (written twice) or line breaks. Every row has as many fields as the header; blank
// lines are passed over.
// Worked example: `a,b` then `1,"x, ""y"""` is one row {"1", "x, \"y\""} on line 2.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.h"

namespace shardsim {

struct CsvRow {
  int line = 0;
  std::vector<std::string> fields;
};

struct CsvTable {
  std::string file;
  std::vector<std::string> header;
  std::vector<CsvRow> rows;

  std::optional<size_t> column(std::string_view name) const;
  // Throws Error, with the columns there are as a hint.
  size_t need(std::string_view name) const;
  Place place(const CsvRow& row) const { return {file, row.line, 0}; }
};

inline constexpr int64_t kLargestTable = int64_t{64} << 20;  // bytes

// `file` is for messages only.
CsvTable parse_csv(std::string_view text, const std::string& file);
CsvTable load_csv(const std::string& path);

// The number that a field holds; nothing where it is empty; Error at its row where it holds anything
// else, an infinity or NaN among it.
std::optional<double> number_of(const CsvTable& table, const CsvRow& row, size_t column);

}  // namespace shardsim
