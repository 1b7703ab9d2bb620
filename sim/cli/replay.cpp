// `shardsim replay`: a scenario's schedule on real devices.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "backends/cuda/replay.h"
#include "backends/host/mpi_group.h"
#include "backends/host/replay.h"
#include "backends/replay/scale.h"
#include "sim/base/error.h"
#include "sim/base/quantity.h"
#include "sim/cli/command.h"
#include "sim/cli/replay_cuda.h"
#include "sim/cli/replay_report.h"
#include "sim/config/scenario.h"
#include "sim/memory/allocator_settings.h"
#include "sim/report/text.h"
#include "sim/study/run_report.h"
#include "sim/study/simulate.h"

namespace shardsim {
namespace {

struct ReplayOptions {
  std::string scenario, ops, backend = "host", scale = "auto";
  int warmup = 3, steps = 5;
  double timeout_s = 60;
  CudaChoices cuda;
  std::string memory_limit;
  std::vector<std::string> given;  // of kCudaOptions
  bool on_cuda() const { return backend == "cuda"; }
};

constexpr const char* kCudaOptions[] = {"--single-gpu", "--memory-limit", "--meet", "--port"};
constexpr const char* kNothingPlayed =
    "interrupted: the schedule was still being laid out, nothing was played\n";
constexpr int64_t kMostThreads = 32;
constexpr int kMostSteps = 1000;
// What a rank of a replay on the host moves and computes in a step, where its scale is chosen.
constexpr Bytes kStepBytes = 128 * kMiB;
constexpr int64_t kStepFlops = 100'000'000;

int64_t scale_of(const ReplayOptions& options, const Schedule& schedule) {
  if (options.scale == "auto" && options.on_cuda()) return 1;
  if (options.scale == "auto") return scale_for(schedule, kStepBytes, kStepFlops);
  constexpr size_t kDigits = 12;
  const bool digits = !options.scale.empty() && options.scale.size() <= kDigits &&
                      options.scale.find_first_not_of("0123456789") == std::string::npos;
  const int64_t scale = digits ? std::stoll(options.scale) : 0;
  if (scale < 1)
    throw Error(
        fmt::format("--scale: expected auto or a whole number from 1, got '{}'", options.scale), {},
        "1 plays the scenario's own sizes, 1024 plays them a thousandth as large");
  return scale;
}

AllocatorSettings allocator_of(const Scenario& scenario, const std::string& file) {
  const AllocatorSettings settings = parse_allocator_settings(scenario.training.allocator);
  if (settings.expandable)
    throw Error("training.allocator: expandable segments are not replayed", {file},
                "a replay reserves whole segments: take expandable_segments out");
  return settings;
}

void check(const ReplayOptions& options) {
  if (options.backend != "host" && !options.on_cuda())
    throw Error(fmt::format("--backend: expected host or cuda, got '{}'", options.backend));
  const auto given = [&](std::string_view option) {
    return std::find(options.given.begin(), options.given.end(), option) != options.given.end();
  };
  if (!options.on_cuda() && !options.given.empty())
    throw Error(options.given.front() + ": only --backend cuda has this option", {},
                "leave it out, or add --backend cuda");
  for (const char* alone : {"--meet", "--port"})
    if (given("--single-gpu") && given(alone))
      throw Error(fmt::format("{}: with --single-gpu there are no other ranks to meet", alone));
  if (given("--meet") && given("--port"))
    throw Error("--port: with --meet the ranks meet in a directory, and at no port");
  if (options.warmup < 1 || options.steps < 1 || options.warmup > kMostSteps ||
      options.steps > kMostSteps)
    throw Error(fmt::format("--warmup and --steps: expected 1 to {} of each, got {} and {}",
                            kMostSteps, options.warmup, options.steps),
                {}, "the data of the first ones is checked, the others are timed");
  constexpr double kDay = 86400;
  if (!(options.timeout_s > 0 && options.timeout_s <= kDay))
    throw Error("--timeout: expected seconds, above 0 and up to a day (86400)");
}

HostOptions host_options(const ReplayOptions& options, const Scenario& scenario,
                         const Context& context) {
  HostOptions host;
  host.play.allocator = allocator_of(scenario, options.scenario);
  host.play.memory = {scenario.cluster.gpu.memory_bytes, scenario.cluster.gpu.context_bytes};
  host.play.checked_steps = options.warmup;
  host.play.timed_from = options.warmup;
  host.limits.timeout_s = options.timeout_s;
  host.limits.interrupted = [&context] { return context.interrupt->requested(); };
  const auto pages = static_cast<Bytes>(sysconf(_SC_PHYS_PAGES));
  host.memory = pages * sysconf(_SC_PAGESIZE) / (2 * scenario.training.mesh.world());
  return host;
}

ReplayRun on_threads(ReplayRun run, int64_t world, const HostOptions& host) {
  run.where = fmt::format("{} ranks as threads", world);
  const std::vector<const Schedule*> ranks(static_cast<size_t>(world), run.played);
  run.ranks = replay_on_threads(ranks, host);
  add_times(run);
  return run;
}

ReplayRun as_process(ReplayRun run, MpiProcess& process, const HostOptions& host) {
  run.where = fmt::format("{} ranks as processes", process.world());
  run.first_rank = process.rank();
  run.ranks.push_back(replay_as_process(*run.played, process, host));
  // Where a rank has failed nobody asks.
  if (!failed(run))
    ask_others(run, [&](const std::string& mine) { return process.exchange(mine); });
  return run;
}

int report(const ReplayRun& run, const std::string& ops, const Context& context) {
  const std::optional<TimedSteps> steps = timed_steps(run);
  note("{}", failure_text(run));
  const std::optional<OpLog> log = replay_log(run, steps);
  if (!ops.empty() && log && run.first_rank == 0) write_file(context, ops, op_log_json(*log));
  if (!ops.empty() && !log)
    note("{} is not written: no launch of rank {} ended\n", ops, run.first_rank);
  if (run.first_rank == 0) {
    if (context.format == Format::json)
      write_output(context, log ? op_log_json(*log) : "null\n");
    else
      write_output(context, replay_text(run, steps));
  }
  const bool interrupted = context.interrupt->requested();
  return interrupted ? kInterrupted : failed(run) || data_differs(run) ? kCheckFailed : kOk;
}

// All that can be wrong before a device is touched.
struct Prepared {
  Scenario scenario;
  HostOptions host;
  int64_t world = 1;
  int steps = 0;
  Schedule schedule, played;
  ReplayRun run;  // without results
};

// A replay has no host work of its own: what the CPU computes between the launches.
std::string left_out_of(const Scenario& scenario, const Simulation& s) {
  if (s.schedule.host_works.empty()) return "";
  std::string what;
  for (const HostWorkRow& w : run_report(scenario, s).host_work)
    what += fmt::format("{}{} ({} a step predicted)", what.empty() ? "" : ", ", w.name,
                        duration(w.time));
  return what.empty() ? "" : "the host's own work is not played: " + what;
}

std::unique_ptr<Prepared> prepare(const ReplayOptions& options, const Context& context) {
  check(options);
  Scenario scenario = load_scenario(options.scenario);
  auto p = std::make_unique<Prepared>();
  p->host = host_options(options, scenario, context);
  p->world = scenario.training.mesh.world();
  p->steps = options.warmup + options.steps;
  scenario.options.max_steps = p->steps;
  Simulation s = simulate(scenario, Until::max_steps);
  if (s.trace.out_of_memory)
    throw Error("the simulation runs out of memory: " + s.trace.out_of_memory->message,
                {options.scenario}, "shardsim run says what holds it");
  p->run.left_out = left_out_of(scenario, s);
  p->schedule = std::move(s.schedule);
  p->run.scenario = scenario.name;
  p->run.world = p->world;
  for (const GroupRow& g : group_rows(s.model, s.plan, scenario.training))
    p->run.groups.push_back(g.name);
  p->run.scale = scale_of(options, p->schedule);
  p->run.timed_from = options.warmup;
  p->played = scaled(p->schedule, p->run.scale, p->world);
  p->run.schedule = &p->schedule;
  p->run.played = &p->played;
  p->scenario = std::move(scenario);
  return p;
}

void say_start(const Prepared& p) { note("playing {} steps on {} ranks\n", p.steps, p.world); }

// The ranks of a job make the same mistake together: rank 0 says it for all that say the same.
int replay_under_mpi(const ReplayOptions& options, const Context& context) {
  const std::unique_ptr<MpiProcess> process = mpi_process();
  if (process->rank() != 0) context.interrupt->say("");
  std::unique_ptr<Prepared> p;
  std::optional<Error> mistake;
  try {
    p = prepare(options, context);
    if (process->world() != p->world)
      throw Error(fmt::format("the scenario has {} ranks, and {} processes were started", p->world,
                              process->world()),
                  {}, fmt::format("mpirun -np {}", p->world));
  } catch (const Error& e) {
    mistake = e;
  }
  const std::vector<std::string> all = process->exchange(mistake ? mistake->text() : "");
  if (mistake && (process->rank() == 0 || all[0] != mistake->text())) note("{}\n", mistake->text());
  // A launcher ends the others as soon as one has left with an error: not before it is said.
  if (std::any_of(all.begin(), all.end(), [](const std::string& e) { return !e.empty(); })) {
    process->exchange("");
    return kUserError;
  }
  context.interrupt->ask_first();
  if (process->rank() == 0) say_start(*p);
  const ReplayRun run = as_process(p->run, *process, p->host);
  const int code = report(run, options.ops, context);
  if (failed(run)) {
    std::fflush(nullptr);
    process->leave(code);
  }
  return code;
}

int replay_on_gpu(const ReplayOptions& options, const Context& context) try {
  check(options);
  require_gpu();
  CudaChoices choices = options.cuda;
  if (!options.memory_limit.empty()) {
    const Parsed<Bytes> limit = parse_bytes(options.memory_limit);
    if (!limit.ok())
      throw Error(fmt::format("--memory-limit: '{}' {}", options.memory_limit, limit.problem));
    choices.memory_limit = limit.value;
  }
  const std::unique_ptr<Prepared> p = prepare(options, context);
  context.interrupt->ask_first();
  const std::optional<ReplayRun> run =
      replay_on_cuda(p->run, p->scenario, choices, p->host.play, p->host.limits);
  if (!run) return context.interrupt->requested() ? kInterrupted : kCheckFailed;
  return report(*run, options.ops, context);
} catch (const NoDevice& e) {
  note("{}\n", e.text());
  return kNoDevice;
}

int replay(const ReplayOptions& options, const Context& context) {
  context.interrupt->say(kNothingPlayed);
  if (options.on_cuda()) return replay_on_gpu(options, context);
  if (started_by_mpi()) return replay_under_mpi(options, context);
  const std::unique_ptr<Prepared> p = prepare(options, context);
  if (p->world > kMostThreads)
    throw Error(
        fmt::format("the scenario has {} ranks, too many for threads of one process", p->world), {},
        fmt::format("a mesh of at most {} ranks, or mpirun", kMostThreads));
  context.interrupt->ask_first();
  say_start(*p);
  return report(on_threads(p->run, p->world, p->host), options.ops, context);
}

}  // namespace

void add_replay(CLI::App& app, Context& context) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App* command = app.add_subcommand(
      "replay", "Plays a scenario's schedule on real devices and measures it, op by op");
  command->add_option("scenario", options->scenario, "A scenario (.yaml)")->required();
  command->add_option("--backend", options->backend,
                      "host (default): streams as threads, ranks as threads or, under mpirun, as "
                      "processes; cuda: NVIDIA GPUs and NCCL, a process a rank");
  add_file_to_write(*command, "--ops", options->ops,
                    "Also writes what rank 0's device did, op by op (.json), for `shardsim "
                    "compare` and `shardsim calibrate --from`");
  command->add_option("--scale", options->scale,
                      "Factor that bytes and FLOPs are divided by; auto (default) chooses one that "
                      "a CPU core plays in a fraction of a second");
  command->add_option("--warmup", options->warmup,
                      "Steps before the timed ones, whose data is checked, 1 to 1000 (default 3)");
  command->add_option("--steps", options->steps, "Timed steps, 1 to 1000 (default 5)");
  command->add_option(
      "--timeout", options->timeout_s,
      "Seconds that a rank waits for anything before it gives up, above 0 and up to "
      "86400 (default 60)");
  command->add_flag(
      "--single-gpu", options->cuda.single_gpu,
      "cuda: one GPU plays rank 0 alone; a collective waits as long as the cost model "
      "says");
  command->add_option("--memory-limit", options->memory_limit,
                      "cuda: what may be reserved of the GPU, such as '40 GiB' (default all)");
  command->add_option(
      "--meet", options->cuda.directory,
      "cuda: a directory on a shared file system that the ranks meet in; without it "
      "they meet over TCP, at MASTER_ADDR");
  command->add_option("--port", options->cuda.port,
                      "cuda: the port that they meet at (default MASTER_PORT + 1)");
  for (const char* option : {"--meet", "--memory-limit"})
    command->get_option(option)->check(
        [](const std::string& text) {
          return text.empty() ? "expected a text that is not empty" : "";
        },
        "");
  command->get_option("--port")->check(CLI::Range(1, 65535));
  add_output_options(*command, context);
  command->footer(
      std::string(has_mpi() ? "Built with MPI. " : "Built without MPI. ") +
      "Exit codes: 2 where a rank failed or data was wrong; what was measured is kept.\n"
      "Examples:\n"
      "  shardsim replay scenarios/small/fsdp2.yaml --ops measured.json\n"
      "  shardsim compare scenarios/small/fsdp2.yaml measured.json\n"
      "  mpirun -np 4 shardsim replay scenarios/small/fsdp2.yaml\n"
      "  torchrun --no-python --nproc-per-node 8 shardsim replay "
      "scenarios/llama3-8b-fsdp2-h100x8.yaml --backend cuda");
  command->callback([options, command, &context] {
    for (const char* option : kCudaOptions)
      if (command->count(option) > 0) options->given.emplace_back(option);
    context.run = [options, &context] { return replay(*options, context); };
  });
}

}  // namespace shardsim
