#include "sim/study/nccl_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string_view>

#include "sim/config/nccl_tests.h"

namespace shardsim {
namespace {

constexpr size_t kLook =
    1 << 16;  // bytes in which its first comments stand, behind a launcher's words

}  // namespace

bool is_nccl_output(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string begin(kLook, '\0');
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<size_t>(std::max<std::streamsize>(0, in.gcount())));
  const size_t first = begin.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return false;
  if (begin[first] == '{') return true;
  const auto has = [&](std::string_view text) { return begin.find(text) != std::string::npos; };
  return has("# nThread ") || has("# Using devices") || has("# Collective test starting:");
}

CsvTable table_of_nccl_output(const std::string& path) {
  const NcclTable sweeps = load_nccl_tests(path);
  CsvTable table;
  table.file = path;
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

}  // namespace shardsim
