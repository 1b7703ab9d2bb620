#include "sim/study/read_op_log.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <unordered_map>

#include "sim/base/escape.h"
#include "sim/config/reader.h"
#include "sim/config/scenario.h"
#include "sim/study/run_report.h"

namespace shardsim {
namespace {

constexpr int64_t kLargestLog = int64_t{256} << 20;  // bytes
constexpr int64_t kLargestLogTree = 8'000'000;       // values: some 800,000 ops
constexpr double kLongest = 1e6;                     // seconds
constexpr double kShortestStep = 1e-12;
constexpr int64_t kMostBytes = int64_t{1} << 53;
constexpr int64_t kMostFlops = int64_t{1'000'000'000'000'000'000};
constexpr int64_t kMostRanks = 1 << 24;

Time time_of(double seconds) { return {std::llround(seconds * 1e12)}; }

std::string shown(const Value& v) { return printable(v.text()); }

std::string shown_or_none(const Value& v) { return v.is_null() ? "" : shown(v); }

// A value of the environment may be empty.
std::string any_text(const Value& v) {
  if (!v.is_scalar()) v.fail_expected("text");
  return printable(v.word());
}

std::optional<int64_t> whole_or_none(const Value& v, int64_t most) {
  return v.is_null() ? std::nullopt : std::optional<int64_t>(v.whole(0, most));
}

WorkKind kind_of(const Value& v) {
  return v.choice<WorkKind>({{"gemm", WorkKind::Gemm},
                             {"kernel", WorkKind::Kernel},
                             {"all_gather", WorkKind::AllGather},
                             {"reduce_scatter", WorkKind::ReduceScatter},
                             {"all_reduce", WorkKind::AllReduce},
                             {"broadcast", WorkKind::Broadcast},
                             {"reduce", WorkKind::Reduce},
                             {"copy_h2d", WorkKind::CopyH2D},
                             {"copy_d2h", WorkKind::CopyD2H},
                             {"copy_d2d", WorkKind::CopyD2D},
                             {"memset", WorkKind::Memset}});
}

std::string fingerprint_of(const Value& v) {
  if (v.is_null()) return "";
  const std::string_view word = v.word();
  if (word.size() != 16 || word.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    v.fail_expected("16 hexadecimal digits or null");
  return std::string(word);
}

class Reader {
 public:
  OpLog read(const Map& map) {
    log_.source = map.at("source").choice<OpSource>({{"simulation", OpSource::simulation},
                                                     {"replay host", OpSource::replay_host},
                                                     {"replay cuda", OpSource::replay_cuda},
                                                     {"kineto", OpSource::kineto}});
    log_.scenario = shown_or_none(map.at("scenario"));
    log_.fingerprint = fingerprint_of(map.at("fingerprint"));
    log_.world = map.at("world_size").whole(1, kMostRanks);
    log_.rank = map.at("rank").whole(0, log_.world - 1);
    log_.scale = map.at("scale").decimal(1, 1e12, "1: sizes are real");
    log_.repeats = map.at("repeats").whole(1, 1'000'000'000);
    log_.statistic = printable(map.at("statistic").text("single, median, min"));
    log_.step_time = time_of(map.at("step_time_s").decimal(kShortestStep, kLongest));
    const Map memory(map.at("memory"),
                     {"peak_allocated_bytes", "peak_active_bytes", "peak_reserved_bytes"});
    log_.peak_allocated = whole_or_none(memory.at("peak_allocated_bytes"), kMostBytes);
    log_.peak_active = whole_or_none(memory.at("peak_active_bytes"), kMostBytes);
    log_.peak_reserved = whole_or_none(memory.at("peak_reserved_bytes"), kMostBytes);
    const Map environment(map.at("environment"), Map::any_key);
    for (const std::string& key : environment.keys())
      log_.environment[printable(key)] = any_text(environment.at(key));
    for (const Value& v : map.at("warnings").list("sentences")) log_.warnings.push_back(shown(v));
    for (const Value& v : map.at("streams").list("names", 1)) log_.streams.push_back(shown(v));
    for (const Value& v : map.at("ops").list("ops", 1)) op(v);
    return std::move(log_);
  }

 private:
  void op(const Value& value) {
    const Map map(value, {"launch", "stream", "kind", "name", "group", "bytes", "flops", "start_s",
                          "duration_s"});
    LoggedOp& op = log_.ops.emplace_back();
    const Value launch = map.at("launch");
    if (const std::optional<int64_t> n = whole_or_none(launch, UINT32_MAX - 1)) {
      op.launch = static_cast<uint32_t>(*n);
      const auto [first, fresh] = launches_.try_emplace(*op.launch, log_.ops.size() - 1);
      if (!fresh) launch.fail(fmt::format("launch {} is also that of ops[{}]", *n, first->second));
    }
    op.stream = static_cast<uint32_t>(
        map.at("stream").whole(0, static_cast<int64_t>(log_.streams.size()) - 1,
                               "the number of one of the log's streams, from 0"));
    op.kind = kind_of(map.at("kind"));
    op.name = shown_or_none(map.at("name"));
    op.group = shown_or_none(map.at("group"));
    op.bytes = whole_or_none(map.at("bytes"), kMostBytes);
    op.flops = whole_or_none(map.at("flops"), kMostFlops);
    op.start = time_of(map.at("start_s").decimal(-kLongest, kLongest));
    op.duration = time_of(map.at("duration_s").decimal(0, kLongest));
  }

  OpLog log_;
  std::unordered_map<uint32_t, size_t> launches_;
};

bool is_json(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
}

}  // namespace

OpLog parse_op_log(std::string_view text, const std::string& file) {
  const Value root(std::make_shared<Document>(parse_json(text, file, kLargestLogTree)));
  const Map any(root, Map::any_key);
  if (any.has("traceEvents"))
    throw Error("this is a profiler's trace, no op log", {file},
                "`shardsim import kineto` makes an op log of it");
  const std::optional<Value> kind = any.find("kind");
  if (!kind || !kind->is_word("op_log"))
    throw Error("this is no op log: it has no \"kind\": \"op_log\"", {file},
                "op logs are written by `shardsim run --ops`, `replay` and `import kineto`");
  const Value version = any.at("schema_version");
  if (!version.is_word("1"))
    version.fail_expected("1", "this program reads op logs of that version only");
  return Reader().read(
      Map(root, {"schema_version", "kind", "source", "scenario", "fingerprint", "rank",
                 "world_size", "scale", "repeats", "statistic", "step_time_s", "memory",
                 "environment", "warnings", "streams", "ops"}));
}

OpLog read_op_log(const std::string& path) {
  return parse_op_log(read_text_file(path, kLargestLog), path);
}

OpLog op_log_of(const Scenario& scenario, const Simulation& s) {
  std::vector<std::string> names;
  for (const GroupRow& g : group_rows(s.model, s.plan, scenario.training)) names.push_back(g.name);
  OpLogFacts facts;
  facts.scenario = scenario.name;
  facts.world = scenario.training.mesh.world();
  facts.environment["GPU"] = scenario.cluster.gpu.name;
  if (!s.steady)
    facts.warnings.push_back(
        "the step is not steady: options.max_steps of the scenario plays more");
  return op_log_of(s.schedule, s.trace, names, std::move(facts));
}

OpLog load_or_simulate_ops(const std::string& path) {
  const std::string text = read_text_file(path, kLargestLog);
  if (is_json(text)) return parse_op_log(text, path);
  if (static_cast<int64_t>(text.size()) > kLargestFile)
    throw Error("this is no op log, and too large for a scenario", {path});
  // Of the text that was read: a pipe is read once.
  const Scenario scenario = parse_scenario(text, path);
  try {
    return op_log_of(scenario, simulate(scenario));
  } catch (const Error& e) {
    if (!e.place().file.empty()) throw;
    throw Error(e.what(), {path}, e.hint());
  }
}

}  // namespace shardsim
