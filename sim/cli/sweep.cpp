// `shardsim sweep`: a study's points, played into a store, and questions to it.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>

#include "sim/base/error.h"
#include "sim/cli/command.h"
#include "sim/cli/shard.h"
#include "sim/study/parallel.h"
#include "sim/study/sweep.h"
#include "sim/study/sweep_page.h"
#include "sim/study/sweep_query.h"

namespace shardsim {
namespace {

struct SweepCommand {
  std::string study, store, shard, html, objective = "step-time";
  std::vector<std::string> merge;
  int threads = 0;
  size_t best = 10;
  bool show = false, any = false;
};

using Clock = std::chrono::steady_clock;

// One line on stderr that is written over, at most ten times a second and on a terminal only.
class ProgressLine {
 public:
  void operator()(int64_t done, int64_t all, int64_t found) {
    if (!terminal_ || (Clock::now() - last_ < std::chrono::milliseconds(100) && done < all)) return;
    last_ = Clock::now();
    const double s = std::chrono::duration<double>(last_ - began_).count();
    const double rate = s > 0 ? static_cast<double>(done - found) / s : 0;
    const double left = rate > 0 ? static_cast<double>(all - done) / rate : 0;
    note("\r{}/{} points, {:.0f} a second, {:.0f} s left\033[K", done, all, rate, left);
    written_ = true;
  }
  void end() const {
    if (written_) note("\r\033[K");
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point last_;
  bool written_ = false;
};

std::string store_of(const SweepCommand& command, const Study& study, const Shard& of) {
  if (!command.store.empty()) return command.store;
  const std::string shard = command.shard.empty() ? "" : fmt::format(".{}-{}", of.number, of.of);
  std::string name = study.name() + shard + ".sweep.db";
  for (char& c : name)
    if (c == '/') c = '-';
  return name;
}

Question question_of(const SweepCommand& command) {
  const std::optional<Objective> objective = objective_of(command.objective);
  if (!objective)
    throw Error(fmt::format("--objective: expected one of {}, got '{}'", objective_names(),
                            command.objective));
  return {*objective, {}};
}

void write(const StoredSweep& sweep, Question question, const SweepCommand& command,
           const Context& context) {
  question.require = sweep.require;
  if (command.any) question.require.fits = false;
  if (!command.html.empty()) write_file(context, command.html, sweep_page(sweep, question));
  switch (context.format) {
    case Format::table: return write_output(context, sweep_table(sweep, question, command.best));
    case Format::json: return write_output(context, sweep_json(sweep, question));
    case Format::csv: return write_output(context, sweep_csv(sweep, question.require));
  }
}

bool is_store(const std::string& path) { return path.ends_with(".db") || is_database(path); }

// A price that no scenario can state is said before all of them are played.
void require_price(const Study& study) {
  for (const Axis& axis : study.axes())
    for (const AxisPlace& place : axis.places)
      for (const Setting& s : place.settings)
        if (s.path.front() == "cluster") return;
  int64_t point = 0;
  while (point < study.size() && study.left_out(point)) ++point;
  if (point == study.size()) return;
  bool priced = true;
  try {
    priced = study.scenario(point).cluster.price_per_gpu_hour > 0;
  } catch (const Error&) {
    // A row's error, or the sweep's.
  }
  if (!priced)
    throw Error("--objective cost: no scenario of this study states a price", {},
                "cluster: {price_per_gpu_hour: ...}");
}

int run(const SweepCommand& command, const Context& context) {
  const Question question = question_of(command);
  const auto refuse = [&](const std::string& input) {
    refuse_overwrite(context, input);
    refuse_overwrite("--html", command.html, input);
  };
  refuse(command.study);
  for (const std::string& part : command.merge) refuse(part);
  refuse(command.store);
  if (!command.merge.empty()) {
    if (!command.study.empty() || !command.shard.empty() || command.show)
      throw Error("--merge: it plays no study, and goes with none, with --shard or --show", {},
                  "shardsim sweep --merge *.db --store all.db");
    if (command.store.empty())
      throw Error("--merge: no store to write is named", {}, "--store merged.db");
    SweepStore::merge(command.merge, command.store);
    write(SweepStore::read(command.store), question, command, context);
    return kOk;
  }
  if (command.study.empty())
    throw Error("no study is given", {}, "shardsim sweep --help explains its options");
  if (command.show && is_store(command.study)) {
    if (!command.store.empty() || !command.shard.empty())
      throw Error(fmt::format("{}: it names a store already",
                              command.store.empty() ? "--shard" : "--store"),
                  {}, "shardsim sweep --show " + command.study);
    write(SweepStore::read(command.study), question, command, context);
    return kOk;
  }
  if (is_store(command.study))
    throw Error("this is a store, no study", {command.study},
                "shardsim sweep --show " + command.study + " answers from it");
  const Study study = load_study(command.study);
  const Shard shard = read_shard(command.shard, environment_variable);
  const std::string path = store_of(command, study, shard);
  refuse(study.base_file());
  refuse(path);
  if (command.show) {
    StoredSweep stored = SweepStore::read(path);
    stored.require = study.require();
    write(stored, question, command, context);
    return kOk;
  }
  SweepOptions options;
  options.threads = threads_or_all(command.threads);
  options.shard = shard.number;
  options.shards = shard.of;
  options.interrupted = [&context] { return context.interrupt->requested(); };
  if (question.objective == Objective::cost) require_price(study);
  ProgressLine line;
  options.progress = [&line](int64_t done, int64_t all, int64_t found) { line(done, all, found); };
  context.interrupt->ask_first();
  SweepResult result;
  {
    SweepStore store(path, study);
    result = sweep(study, store, options);
  }
  line.end();
  note("{}: {} points, {} played, {} found in the store or alike, {} failed\n", path, result.points,
       result.played, result.found, result.failed);
  if (!result.whole) {
    note("interrupted: the same command goes on where this one was\n");
    return kInterrupted;
  }
  write(SweepStore::read(path), question, command, context);
  return kOk;
}

}  // namespace

void add_sweep(CLI::App& app, Context& context) {
  auto options = std::make_shared<SweepCommand>();
  CLI::App* command =
      app.add_subcommand("sweep", "Plays a study's points into a store, and answers from it");
  command->add_option("study", options->study, "A study (.yaml); with --show also a store (.db)");
  command->add_option(
      "--store", options->store,
      "The store (default: the study's name with .sweep.db); points that it has are "
      "not played again");
  command->add_option("-j", options->threads, "Threads (default: all)")->check(CLI::Range(0, 1024));
  command->add_option_function<std::string>(
      "--shard",
      [options](const std::string& shard) {
        if (shard.empty())
          throw Error("--shard: expected i/n with i from 1 to n, or auto, got ''", {},
                      "--shard 3/8; with sbatch --array or mpirun: --shard auto");
        options->shard = shard;
      },
      "i/n: only the i-th of n parts of the points; auto: the part that a Slurm "
      "array, mpirun, srun or torchrun gives this process");
  command->add_option("--merge", options->merge, "Stores of parts, into the new store --store");
  command->add_flag("--show", options->show, "Answers from the store and plays nothing");
  add_file_to_write(*command, "--html", options->html,
                    "Also writes a page of the sweep: scatter with Pareto front, filters, each "
                    "point's scenario (.html)");
  command->add_option("--objective", options->objective,
                      "step-time (default), tokens-per-s, tokens-per-s-per-gpu, peak-memory, cost");
  command->add_flag("--any", options->any, "Points that do not fit in memory count too");
  command->add_option("--best", options->best, "Points that the table shows (default 10)")
      ->check(CLI::Range(1, 1'000'000));
  add_output_options(*command, context);
  command->footer(
      "--format csv and json hold all points, with why the answers exclude some. Examples:\n"
      "  shardsim sweep scenarios/studies/wrapping/llama3-8b.yaml\n"
      "  shardsim sweep --show wrapping-llama3-8b.sweep.db --objective tokens-per-s --best 3\n"
      "  shardsim sweep --show wrapping-llama3-8b.sweep.db --html sweep.html\n"
      "  mpirun -np 8 shardsim sweep STUDY.yaml --shard auto -j 1; shardsim sweep --merge *.db "
      "--store all.db");
  command->callback([options, &context] {
    context.run = [options, &context] { return run(*options, context); };
  });
}

}  // namespace shardsim
