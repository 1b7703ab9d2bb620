// How long a study of 10,000 different points takes on two threads, half Llama-3-8B and half
// Llama-3-70B (tests/sweep/ten_thousand.yaml): scenarios read, laid out, priced, played until they
// are steady, summarized and stored. With reserved bytes every tenth of the points is played.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "sim/study/sweep.h"

namespace shardsim {
namespace {

void play(benchmark::State& state, const char* options, int64_t shards) {
  const std::string path = SHARDSIM_SOURCE_DIR "/tests/sweep/ten_thousand.yaml";
  std::stringstream text;
  text << std::ifstream(path).rdbuf() << options;
  const Study study = parse_study(text.str(), path);
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / "shardsim_bench.sweep.db";
  int64_t points = 0;
  for (auto _ : state) {
    std::filesystem::remove(file);
    SweepStore store(file.string(), study);
    SweepOptions o;
    o.threads = 2;
    o.shards = shards;
    points += sweep(study, store, o).played;
  }
  std::filesystem::remove(file);
  state.counters["points/s"] =
      benchmark::Counter(static_cast<double>(points), benchmark::Counter::kIsRate);
}

void Sweep10000_Live(benchmark::State& state) { play(state, "", 1); }
void Sweep1000_Blocks(benchmark::State& state) { play(state, "  options.memory: [blocks]\n", 10); }

BENCHMARK(Sweep10000_Live)->UseRealTime()->Unit(benchmark::kSecond)->Iterations(1);
BENCHMARK(Sweep1000_Blocks)->UseRealTime()->Unit(benchmark::kSecond)->Iterations(1);

}  // namespace
}  // namespace shardsim
