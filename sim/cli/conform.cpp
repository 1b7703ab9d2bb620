// `shardsim conform`: what the simulator does against recordings of real PyTorch.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/quantity.h"
#include "sim/cli/command.h"
#include "sim/report/text.h"
#include "sim/study/conform.h"

namespace shardsim {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct ConformOptions {
  std::vector<std::string> paths;
  std::vector<std::string> tolerances;
  bool verbose = false;
};

struct File {
  std::string path;
  bool given = false;  // by name, not by its folder
};

// A folder stands for its recordings; lists of programs and of operators are not recordings.
std::vector<File> recordings(const std::vector<std::string>& paths) {
  std::vector<File> out;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::exists(path, error))
      throw Error("there is no such recording", {path}, "give a file or a folder");
    if (!fs::is_directory(path, error)) {
      out.push_back({path, true});
      continue;
    }
    std::vector<File> inside;
    try {
      for (const auto& entry : fs::recursive_directory_iterator(path)) {
        const std::string name = entry.path().filename().string();
        if (entry.is_regular_file(error) && entry.path().extension() == ".json" &&
            name != "cases.json" && name != "operators.json")
          inside.push_back({entry.path().string(), false});
      }
    } catch (const fs::filesystem_error& e) {
      throw Error(std::string("the folder cannot be read: ") + e.code().message(), {path});
    }
    std::sort(inside.begin(), inside.end(),
              [](const File& a, const File& b) { return a.path < b.path; });
    if (inside.empty())
      throw Error("this folder holds no recordings", {path}, "they are .json files");
    out.insert(out.end(), inside.begin(), inside.end());
  }
  return out;
}

// The row says already that this is not a recording.
std::string reason_of(std::string text) {
  for (const std::string_view own : {"this is not a recording: ", "not an allocator script: "})
    if (text.starts_with(own)) text.erase(0, own.size());
  return text;
}

struct Column {
  const char* key;
  std::optional<bool> Checks::*truth;
  std::optional<double> Checks::*error;
};

constexpr Column kColumns[] = {
    {"shapes", &Checks::shapes, nullptr},
    {"order", &Checks::order, nullptr},
    {"streams", &Checks::streams, nullptr},
    {"waits", &Checks::waits, nullptr},
    {"host_waits", &Checks::host_waits, nullptr},
    {"oom", &Checks::oom, nullptr},
    {"allocator", &Checks::allocator, nullptr},
    {"timeline_error", nullptr, &Checks::timeline_error},
    {"allocated_error", nullptr, &Checks::allocated_error},
    {"peak_error", nullptr, &Checks::peak_error},
    {"active_error", nullptr, &Checks::active_error},
    {"reserved_error", nullptr, &Checks::reserved_error},
};

std::map<std::string, double> read_tolerances(const std::vector<std::string>& texts) {
  std::map<std::string, double> out;
  for (const std::string& text : texts) {
    const size_t at = text.find('=');
    const std::string key = text.substr(0, at);
    const auto known = std::find_if(std::begin(kColumns), std::end(kColumns),
                                    [&](const Column& c) { return c.error && key == c.key; });
    if (at == std::string::npos || known == std::end(kColumns))
      throw Error("--tolerance: expected KEY=VALUE, got '" + text + "'", {},
                  "keys are timeline_error allocated_error peak_error active_error reserved_error");
    const std::string number = text.substr(at + 1);
    const Parsed<double> limit = parse_decimal(number);
    if (!limit.ok() || limit.value < 0)
      throw Error("--tolerance: '" + number + "' is not a number of at least 0", {},
                  "0.005 is half a per cent");
    out[key] = limit.value;
  }
  return out;
}

bool failed(const Checks& checks, const std::map<std::string, double>& tolerances) {
  for (const Column& c : kColumns) {
    if (c.truth && (checks.*c.truth).has_value() && !*(checks.*c.truth)) return true;
    if (!c.error || !(checks.*c.error)) continue;
    const auto limit = tolerances.find(c.key);
    if (limit != tolerances.end() && *(checks.*c.error) > limit->second) return true;
  }
  return false;
}

std::string cell(const Checks& checks, const Column& c) {
  if (c.truth) return (checks.*c.truth) ? (*(checks.*c.truth) ? "yes" : "NO") : "-";
  return (checks.*c.error) ? fmt::format("{:.3g}", *(checks.*c.error)) : "-";
}

std::string csv_cell(const Checks& checks, const Column& c) {
  if (c.truth) return (checks.*c.truth) ? (*(checks.*c.truth) ? "true" : "false") : "";
  return (checks.*c.error) ? fmt::format("{}", *(checks.*c.error)) : "";
}

struct Total {
  size_t passed = 0, failing = 0, absent = 0;
  double worst = 0;
};

struct Results {
  std::vector<Conformance> rows;
  size_t compared = 0, skipped = 0, failed = 0, errors = 0;
  size_t passed_over = 0;  // files of a folder, which are no rows
  std::map<std::string, Total> totals;
};

Results compare_all(const std::vector<File>& files, bool verbose,
                    const std::map<std::string, double>& tolerances) {
  Results out;
  for (const File& file : files) {
    Conformance r = conform_file(file.path, verbose);
    if (!r.error.empty() && r.foreign && !file.given) {
      ++out.passed_over;
      continue;
    }
    if (!r.error.empty())
      ++out.errors;
    else if (!r.skipped.empty())
      ++out.skipped;
    else
      ++out.compared;
    if (r.compared() && failed(r.checks, tolerances)) ++out.failed;
    out.rows.push_back(std::move(r));
  }
  for (const Column& c : kColumns) {
    Total& t = out.totals[c.key];
    for (const Conformance& r : out.rows) {
      if (!r.compared()) continue;
      if (c.truth) {
        const auto v = r.checks.*c.truth;
        ++(!v ? t.absent : *v ? t.passed : t.failing);
        continue;
      }
      const auto v = r.checks.*c.error;
      if (!v) {
        ++t.absent;
        continue;
      }
      t.worst = std::max(t.worst, *v);
      ++(*v == 0 ? t.passed : t.failing);
    }
  }
  return out;
}

std::string json_of(const Results& results) {
  ordered_json j;
  j["recordings"] = ordered_json::array();
  for (const Conformance& r : results.rows) {
    ordered_json row;
    row["file"] = r.file;
    row["skipped"] = r.skipped.empty() ? ordered_json(nullptr) : ordered_json(r.skipped);
    row["error"] = r.error.empty() ? ordered_json(nullptr) : ordered_json(r.error);
    ordered_json checks;
    for (const Column& c : kColumns) {
      ordered_json v = nullptr;
      if (r.compared()) {
        if (c.truth && (r.checks.*c.truth)) v = *(r.checks.*c.truth);
        if (c.error && (r.checks.*c.error)) v = *(r.checks.*c.error);
      }
      checks[c.key] = v;
    }
    row["checks"] = checks;
    if (!r.checks.differences.empty()) row["differences"] = r.checks.differences;
    j["recordings"].push_back(row);
  }
  ordered_json t;
  t["recordings"] = results.rows.size();
  t["compared"] = results.compared;
  t["skipped"] = results.skipped;
  t["failed"] = results.failed;
  t["errors"] = results.errors;
  t["passed_over"] = results.passed_over;
  for (const Column& c : kColumns) {
    const Total& x = results.totals.at(c.key);
    if (c.truth)
      t[c.key] = {{"true", x.passed}, {"false", x.failing}, {"null", x.absent}};
    else
      t[c.key] = {
          {"max", x.worst}, {"exact", x.passed}, {"inexact", x.failing}, {"null", x.absent}};
  }
  j["totals"] = t;
  return j.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string csv_of(const Results& results) {
  std::string out = "file,skipped,error";
  for (const Column& c : kColumns) out += std::string(",") + c.key;
  out += "\n";
  for (const Conformance& r : results.rows) {
    out += csv_field(r.file) + "," + csv_field(r.skipped) + "," + csv_field(r.error);
    for (const Column& c : kColumns) out += "," + (r.compared() ? csv_cell(r.checks, c) : "");
    out += "\n";
  }
  return out;
}

std::string table_of(const Results& results) {
  // In the order of kColumns.
  constexpr const char* kHeads[] = {"shapes",    "order", "streams",   "waits",
                                    "host",      "oom",   "allocator", "timeline",
                                    "allocated", "peak",  "active",    "reserved"};
  static_assert(std::size(kHeads) == std::size(kColumns));
  std::vector<size_t> widths;
  for (const char* head : kHeads) widths.push_back(std::string_view(head).size());
  size_t width = 9;
  for (const Conformance& r : results.rows) {
    width = std::max(width, fs::path(r.file).stem().string().size());
    for (size_t i = 0; i < widths.size(); ++i)
      if (r.compared()) widths[i] = std::max(widths[i], cell(r.checks, kColumns[i]).size());
  }
  std::string out;
  const auto line = [&](const std::string& name, const auto& text) {
    std::string row = fmt::format("{:<{}} ", name, width);
    for (size_t i = 0; i < widths.size(); ++i) row += fmt::format(" {:<{}}", text(i), widths[i]);
    row.erase(row.find_last_not_of(' ') + 1);
    out += row + "\n";
  };
  line("recording", [&](size_t i) { return std::string(kHeads[i]); });
  for (const Conformance& r : results.rows) {
    const std::string name = fs::path(r.file).stem().string();
    if (!r.compared()) {
      out += fmt::format(
          "{:<{}}  {}\n", name, width,
          r.error.empty() ? "skipped: " + r.skipped : "not a recording: " + reason_of(r.error));
      continue;
    }
    line(name, [&](size_t i) { return cell(r.checks, kColumns[i]); });
    for (const std::string& difference : r.checks.differences) out += "    " + difference + "\n";
  }
  const size_t n = results.rows.size();
  out += fmt::format("\n{} recording{}, {} compared, {} skipped, {} failed", n, n == 1 ? "" : "s",
                     results.compared, results.skipped, results.failed);
  if (results.errors > 0) out += fmt::format(", {} not a recording", results.errors);
  out += "\n";
  if (results.passed_over > 0)
    out += fmt::format("{} other file{} in the folders, passed over\n", results.passed_over,
                       results.passed_over == 1 ? "" : "s");
  for (const Column& c : kColumns) {
    const Total& t = results.totals.at(c.key);
    if (t.absent == results.compared) continue;
    if (c.truth)
      out += fmt::format("  {:<16} {} of {}\n", c.key, t.passed, t.passed + t.failing);
    else
      out += fmt::format("  {:<16} largest {:.3g}, exact in {} of {}\n", c.key, t.worst, t.passed,
                         t.passed + t.failing);
  }
  return out;
}

int run(const ConformOptions& options, const Context& context) {
  const auto tolerances = read_tolerances(options.tolerances);
  const std::vector<File> files = recordings(options.paths);
  for (const File& file : files) refuse_overwrite(context, file.path);
  const Results results = compare_all(files, options.verbose, tolerances);
  switch (context.format) {
    case Format::table: write_output(context, table_of(results)); break;
    case Format::json: write_output(context, json_of(results)); break;
    case Format::csv: write_output(context, csv_of(results)); break;
  }
  if (results.errors > 0) return kUserError;
  return results.failed > 0 ? kCheckFailed : kOk;
}

}  // namespace

void add_conform(CLI::App& app, Context& context) {
  auto options = std::make_shared<ConformOptions>();
  CLI::App* command = app.add_subcommand(
      "conform", "Compares the simulation with recordings of real PyTorch, call by call");
  command->add_option("recording", options->paths, "Recordings (.json) or folders of them")
      ->required();
  command->add_option("--tolerance", options->tolerances,
                      "KEY=VALUE: exit code 2 where that error is larger (repeatable)");
  command->add_flag("--verbose", options->verbose, "Ten lines around each first difference");
  add_output_options(*command, context);
  command->footer(
      "Examples:\n"
      "  shardsim conform tests/recordings\n"
      "  shardsim conform basic_fp32.json --verbose --tolerance timeline_error=0.005\n"
      "Exit code 2: a check failed or an error is above its tolerance; 1: a file is not a "
      "recording.");
  command->callback([options, &context] {
    context.run = [options, &context] { return run(*options, context); };
  });
}

}  // namespace shardsim
