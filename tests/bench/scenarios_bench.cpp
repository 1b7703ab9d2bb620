// How many scenarios a core simulates a second: the program of the recording
// llama3_8b_8gpu_ac_none_2k (Llama-3-8B on 8 GPUs, no checkpointing, 2048 tokens), at operator level,
// under roofline costs: schedule laid out, priced, played and summarized; no graph, no text. Every
// scenario differs from the others in its sequence length, so nothing is cached whole.
#include <benchmark/benchmark.h>

#include "sim/cluster/catalogue.h"
#include "sim/report/timeline.h"
#include "sim/study/simulate.h"

namespace shardsim {
namespace {

Scenario llama3_8b() {
  Scenario s;
  s.name = "llama3-8b";
  Architecture& a = s.model;
  a.name = a.model_type = "llama";
  a.naming = Naming::recorder;
  a.vocab = 128256;
  a.hidden = 4096;
  a.layers = 32;
  a.ffn = 14336;
  a.heads = 32;
  a.kv_heads = 8;
  a.head_dim = 128;
  s.cluster = *find_system("dgx-h100");
  s.training.seq_len = 2048;
  s.training.mesh.shard = 8;
  s.training.precision.compute = DType::bf16;
  s.training.precision.reduce = DType::fp32;
  return s;
}

void run(benchmark::State& state, MemoryLevel memory, int64_t steps, bool sharing) {
  Scenario scenario = llama3_8b();
  scenario.cost.sharing = sharing;
  scenario.options.memory = memory;
  scenario.options.max_steps = steps;
  int64_t n = 0;
  Timeline timeline;
  Simulation s;
  Time total;
  Bytes peak = 0;
  for (auto _ : state) {
    scenario.training.seq_len = 1024 + 8 * (n++ % 512);
    simulate(scenario, Until::max_steps, s);
    timeline.build(s.schedule, s.trace, s.steps - 1);
    total += timeline.times().length();
    peak = std::max(peak, s.trace.peak);
    benchmark::DoNotOptimize(total);
    benchmark::DoNotOptimize(peak);
  }
  state.counters["scenarios/s"] =
      benchmark::Counter(static_cast<double>(n), benchmark::Counter::kIsRate);
}

void Llama3_8B_Live(benchmark::State& state) { run(state, MemoryLevel::live, 2, false); }
void Llama3_8B_Blocks(benchmark::State& state) { run(state, MemoryLevel::blocks, 3, false); }
void Llama3_8B_Shared(benchmark::State& state) { run(state, MemoryLevel::live, 2, true); }
void Llama3_8B_SharedBlocks(benchmark::State& state) { run(state, MemoryLevel::blocks, 3, true); }
BENCHMARK(Llama3_8B_Live)->Unit(benchmark::kMicrosecond);
BENCHMARK(Llama3_8B_Blocks)->Unit(benchmark::kMicrosecond);
BENCHMARK(Llama3_8B_Shared)->Unit(benchmark::kMicrosecond);
BENCHMARK(Llama3_8B_SharedBlocks)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace shardsim
