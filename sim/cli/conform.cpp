// `shardsim conform`: what the simulator does against recordings of real PyTorch.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/cli/command.h"
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

// A folder stands for its recordings; lists of programs and of operators are not recordings.
std::vector<std::string> recordings(const std::vector<std::string>& paths) {
  std::vector<std::string> out;
  for (const std::string& path : paths) {
    if (!fs::exists(path))
      throw Error("there is no such recording", {path}, "give a file or a folder");
    if (!fs::is_directory(path)) {
      out.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      const std::string name = entry.path().filename().string();
      if (entry.is_regular_file() && entry.path().extension() == ".json" && name != "cases.json" &&
          name != "operators.json")
        inside.push_back(entry.path().string());
    }
    std::sort(inside.begin(), inside.end());
    if (inside.empty())
      throw Error("this folder holds no recordings", {path}, "they are .json files");
    out.insert(out.end(), inside.begin(), inside.end());
  }
  return out;
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
    try {
      size_t used = 0;
      out[key] = std::stod(text.substr(at + 1), &used);
      if (used != text.size() - at - 1 || !(out[key] >= 0)) throw std::invalid_argument("");
    } catch (const std::logic_error&) {
      throw Error("--tolerance: '" + text.substr(at + 1) + "' is not a number of at least 0", {},
                  "0.005 is half a per cent");
    }
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
  return (checks.*c.error) ? fmt::format("{:.5f}", *(checks.*c.error)) : "-";
}

int run(const ConformOptions& options, const Context& context) {
  const auto tolerances = read_tolerances(options.tolerances);
  std::vector<Conformance> results;
  for (const std::string& path : recordings(options.paths))
    results.push_back(conform_file(path, options.verbose));

  size_t skipped = 0, bad = 0;
  for (const Conformance& r : results) {
    if (!r.skipped.empty())
      ++skipped;
    else if (failed(r.checks, tolerances))
      ++bad;
  }
  const size_t compared = results.size() - skipped;

  struct Total {
    size_t passed = 0, failing = 0, absent = 0;
    double worst = 0;
  };
  std::map<std::string, Total> totals;
  for (const Column& c : kColumns) {
    Total& t = totals[c.key];
    for (const Conformance& r : results) {
      if (!r.skipped.empty()) continue;
      if (c.truth) {
        const auto v = r.checks.*c.truth;
        ++(!v ? t.absent : *v ? t.passed : t.failing);
      } else {
        const auto v = r.checks.*c.error;
        if (!v) {
          ++t.absent;
          continue;
        }
        t.worst = std::max(t.worst, *v);
        ++(*v == 0 ? t.passed : t.failing);
      }
    }
  }

  std::string out;
  if (context.format == Format::json) {
    ordered_json j;
    j["recordings"] = ordered_json::array();
    for (const Conformance& r : results) {
      ordered_json row;
      row["file"] = r.file;
      row["skipped"] = r.skipped.empty() ? ordered_json(nullptr) : ordered_json(r.skipped);
      ordered_json checks;
      for (const Column& c : kColumns) {
        ordered_json v = nullptr;
        if (r.skipped.empty()) {
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
    t["recordings"] = results.size();
    t["compared"] = compared;
    t["skipped"] = skipped;
    t["failed"] = bad;
    for (const Column& c : kColumns) {
      const Total& x = totals[c.key];
      if (c.truth)
        t[c.key] = {{"true", x.passed}, {"false", x.failing}, {"null", x.absent}};
      else
        t[c.key] = {
            {"max", x.worst}, {"exact", x.passed}, {"inexact", x.failing}, {"null", x.absent}};
    }
    j["totals"] = t;
    out = j.dump(2) + "\n";
  } else if (context.format == Format::csv) {
    out = "file,skipped";
    for (const Column& c : kColumns) out += std::string(",") + c.key;
    out += "\n";
    for (const Conformance& r : results) {
      std::string reason = r.skipped;
      for (size_t at = 0; (at = reason.find('"', at)) != std::string::npos; at += 2)
        reason.insert(at, "\"");
      out += r.file + ",\"" + reason + "\"";
      for (const Column& c : kColumns) out += "," + (r.skipped.empty() ? cell(r.checks, c) : "");
      out += "\n";
    }
  } else {
    size_t width = 9;
    for (const Conformance& r : results)
      width = std::max(width, fs::path(r.file).stem().string().size());
    out += fmt::format("{:<{}}  shapes order streams waits host oom  timeline  allocated peak\n",
                       "recording", width);
    for (const Conformance& r : results) {
      out += fmt::format("{:<{}}", fs::path(r.file).stem().string(), width);
      if (!r.skipped.empty()) {
        out += "  skipped: " + r.skipped + "\n";
        continue;
      }
      const auto c = [&](int i) { return cell(r.checks, kColumns[i]); };
      out += fmt::format("  {:<6} {:<5} {:<7} {:<5} {:<4} {:<4} {:<9} {:<9} {}\n", c(0), c(1), c(2),
                         c(3), c(4), c(5), c(7), c(8), c(9));
      for (const std::string& line : r.checks.differences) out += "    " + line + "\n";
    }
    out += fmt::format("\n{} recordings, {} compared, {} skipped, {} failed\n", results.size(),
                       compared, skipped, bad);
    for (const Column& c : kColumns) {
      const Total& t = totals[c.key];
      if (t.absent == compared) continue;
      if (c.truth)
        out += fmt::format("  {:<16} {} of {}\n", c.key, t.passed, t.passed + t.failing);
      else
        out += fmt::format("  {:<16} largest {:.5f}, exact in {} of {}\n", c.key, t.worst, t.passed,
                           t.passed + t.failing);
    }
  }
  write_output(context, out);
  return bad > 0 ? kCheckFailed : kOk;
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
      "  shardsim conform basic_fp32.json --verbose --tolerance timeline_error=0.005");
  command->callback([options, &context] {
    context.run = [options, &context] { return run(*options, context); };
  });
}

}  // namespace shardsim
