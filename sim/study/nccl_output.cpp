#include "sim/study/nccl_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "sim/config/document.h"
#include "sim/config/nccl_tests.h"

namespace shardsim {
namespace {

constexpr size_t kLook =
    1 << 16;  // bytes in which its first comments stand, behind a launcher's words

bool is_nccl_output(std::string_view text) {
  const std::string_view begin = text.substr(0, kLook);
  const size_t first = begin.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return false;
  if (begin[first] == '{') return true;
  const auto has = [&](std::string_view words) {
    return begin.find(words) != std::string_view::npos;
  };
  return has("# nThread ") || has("# Using devices") || has("# Collective test starting:");
}

CsvTable table_of(const NcclTable& sweeps) {
  CsvTable table;
  table.file = sweeps.file;
  table.header = {"system", "nodes", "gpus", "collective", "bytes", "time_us"};
  for (const NcclSweep& s : sweeps.sweeps)
    for (const NcclSweep::Point& p : s.points) {
      CsvRow row;
      row.line = 1;
      row.fields = {"this machine",
                    fmt::format("{}", std::max<int64_t>(1, s.nodes)),
                    fmt::format("{}", s.ranks),
                    s.collective,
                    fmt::format("{}", p.bytes),
                    fmt::format("{}", p.us)};
      table.rows.push_back(std::move(row));
    }
  return table;
}

}  // namespace

CsvTable load_measurements(const std::string& path) {
  const std::string text = read_text_file(path, kLargestTable);
  return is_nccl_output(text) ? table_of(parse_nccl_tests(text, path)) : parse_csv(text, path);
}

}  // namespace shardsim
