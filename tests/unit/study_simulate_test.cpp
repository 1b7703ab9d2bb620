// From a scenario to a trace and a report: steps until they repeat, memory that is used again, the
// figures of a whole Llama-3-8B.
#include "sim/study/simulate.h"

#include <gtest/gtest.h>

#include <string_view>

#include "sim/cluster/catalogue.h"
#include "sim/config/scenario.h"
#include "sim/study/run_report.h"
#include "tests/unit/play_scenario.h"

namespace shardsim {
namespace {

// Starts and ends of one step's launches, from the step's first start.
std::vector<std::pair<int64_t, int64_t>> step_of(const Simulation& s, int step) {
  uint32_t first = 0, end = 0;
  for (const MarkRow& row : s.trace.marks) {
    const MarkInfo& mark = s.schedule.marks[row.mark];
    if (mark.begins_step && mark.step == step - 1) first = row.launches;
    if (mark.begins_step && mark.step == step) end = row.launches;
  }
  std::vector<std::pair<int64_t, int64_t>> out;
  for (uint32_t i = first; i < end; ++i)
    out.emplace_back(s.trace.start[i].ps - s.trace.start[first].ps,
                     s.trace.end[i].ps - s.trace.start[first].ps);
  return out;
}

Scenario adamw_stack() {
  Scenario s = test::stack_scenario(3);
  s.training.optimizer.name = Optimizer::Name::adamw;
  s.options.max_steps = 8;
  return s;
}

// The first step makes the optimizer's state; from the second on steps are alike, and so are those
// that are not played.
TEST(StudySimulate, StepsUntilTheyRepeat) {
  const Simulation s = simulate(adamw_stack());
  EXPECT_TRUE(s.steady);
  EXPECT_EQ(s.steps, 2);
  const Simulation all = simulate(adamw_stack(), Until::max_steps);
  EXPECT_EQ(all.steps, 8);
  EXPECT_NE(step_of(all, 0), step_of(all, 1));
  for (int step = 2; step < 8; ++step) EXPECT_EQ(step_of(all, step), step_of(all, 1)) << step;
  EXPECT_EQ(step_of(s, 1), step_of(all, 7));
  // The allocator's blocks are only known to be where they were when a step has found them there.
  Scenario blocks = adamw_stack();
  blocks.options.memory = MemoryLevel::blocks;
  const Simulation b = simulate(blocks);
  EXPECT_TRUE(b.steady);
  EXPECT_EQ(b.steps, 3);
  EXPECT_EQ(step_of(b, 2), step_of(all, 7));
}

// Offloaded parameters of 4 x 1024 x 1024 over 8 ranks, AdamW's loop on a thread: 21 x 524,288 accesses
// at 4.9 a ns and 4 x 9 operators of 14.6 us are 2,772.5 us; the first step makes the moments as well.
// The second step launches nothing new, only its host's works are others.
TEST(StudySimulate, TheHostsWorkIsPricedInEachStep) {
  Scenario s = test::stack_scenario(4);
  s.cluster = *find_system("dgx-h100");
  s.cost.model = CostChoice::Model::roofline;
  s.training.optimizer.name = Optimizer::Name::adamw;
  s.training.fsdp2.cpu_offload = CpuOffload::pinned;
  const Simulation played = simulate(s);
  EXPECT_TRUE(played.steady);
  size_t at = 0;
  int loops = 0;
  played.schedule.for_each([&](const Instr& in, const Segment&) {
    if (in.kind != Kind::HostWork) return;
    const Trace::Worked& w = played.trace.worked[at++];
    if (std::string_view(played.schedule.host_works[in.a].name) != "CPU optimizer") return;
    const double us = (w.end - w.start).as_us();
    if (loops++ == 0)
      EXPECT_GT(us, 2772.5 + 2 * 524'288 * 4 / 1.7e3);
    else
      EXPECT_NEAR(us, 2772.5, .1);
  });
  EXPECT_EQ(loops, played.steps);
}

TEST(StudySimulate, AtMostMaxSteps) {
  Scenario s = adamw_stack();
  s.options.max_steps = 1;
  const Simulation one = simulate(s);
  EXPECT_EQ(one.steps, 1);
  EXPECT_FALSE(one.steady);
}

void expect_same(const Simulation& a, const Simulation& b) {
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.steady, b.steady);
  EXPECT_EQ(a.trace.start, b.trace.start);
  EXPECT_EQ(a.trace.end, b.trace.end);
  EXPECT_EQ(a.trace.issued, b.trace.issued);
  EXPECT_EQ(a.trace.peak, b.trace.peak);
  EXPECT_EQ(a.trace.peak_by_category, b.trace.peak_by_category);
  EXPECT_EQ(a.trace.out_of_memory.has_value(), b.trace.out_of_memory.has_value());
  ASSERT_EQ(a.trace.marks.size(), b.trace.marks.size());
  for (size_t i = 0; i < a.trace.marks.size(); ++i) {
    EXPECT_EQ(a.trace.marks[i].host, b.trace.marks[i].host);
    EXPECT_EQ(a.trace.marks[i].allocated, b.trace.marks[i].allocated);
    EXPECT_EQ(a.trace.marks[i].allocated_peak, b.trace.marks[i].allocated_peak);
    EXPECT_EQ(a.trace.marks[i].reserved_peak, b.trace.marks[i].reserved_peak);
  }
  EXPECT_EQ(a.schedule.buffers.size(), b.schedule.buffers.size());
  EXPECT_EQ(a.schedule.works.size(), b.schedule.works.size());
  EXPECT_EQ(a.schedule.marks.size(), b.schedule.marks.size());
  EXPECT_EQ(a.schedule.comms.size(), b.schedule.comms.size());
  EXPECT_EQ(a.plan.groups.size(), b.plan.groups.size());
}

// Programs of every kind, one after another into one simulation, and each for itself.
TEST(StudySimulate, MemoryUsedAgain) {
  std::vector<Scenario> all;
  all.push_back(test::llama_scenario(4, 1, 256));
  all.push_back(test::bag_scenario());
  all.push_back(adamw_stack());
  all.push_back(test::gpt2_scenario(3, 2, 128));
  all.push_back(test::rooted_scenario(5));
  all.back().training.mesh.replicate = 2;
  all.back().training.grad_accum = 3;
  all.back().training.fsdp2.requires_all_reduce = Micro::last;
  all.push_back(test::llama_scenario(2, 2, 128));
  all.back().training.checkpointing.mode = Checkpointing::Mode::selective_op;
  all.back().options.memory = MemoryLevel::blocks;
  all.push_back(test::stack_scenario(2));
  all.back().training.wrap.policy = WrapPolicy::children;
  all.push_back(test::llama_scenario(3, 1, 128));
  all.back().options.memory = MemoryLevel::blocks;
  all.back().cluster.gpu.memory_bytes = 560 * kMiB;  // does not fit
  all.push_back(test::llama_scenario(1, 1, 128));
  Simulation used;
  for (int round = 0; round < 2; ++round)
    for (const Scenario& s : all) {
      simulate(s, Until::steady, used);
      expect_same(used, simulate(s));
    }
}

// The program of the shipped scenario: a block has 218,112,000 elements, gathered in bf16 and reduced
// in fp32; a rank of 8 stores 27,264,000 of them in fp32.
TEST(StudySimulate, Llama3_8b) {
  const Scenario s = load_scenario(SHARDSIM_SOURCE_DIR "/scenarios/llama3-8b-fsdp2-h100x8.yaml");
  const Simulation run = simulate(s);
  const StepReport report = run_report(s, run);
  EXPECT_EQ(report.model.params, 8'030'261'248);
  EXPECT_EQ(report.model.flops_per_token, 57'914'449'920);
  const GroupRow* block = nullptr;
  for (const GroupRow& g : report.groups)
    if (g.name == "model.layers.17") block = &g;
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(block->numel, 218'112'000);
  EXPECT_EQ(block->padded_numel, 218'112'000);
  EXPECT_EQ(block->shard_bytes, 27'264'000 * 4);
  EXPECT_EQ(block->all_gather_bytes, 436'224'000);
  EXPECT_EQ(block->reduce_scatter_bytes, 872'448'000);
  EXPECT_GT(report.step_time_s(), 0.5);
  EXPECT_LT(report.step_time_s(), 5);
  // MFU is what its definition says: FLOPs a token, tokens, the peak of 989 TFLOPS, the step's time.
  EXPECT_NEAR(report.mfu(),
              57.91444992e9 * static_cast<double>(report.run.tokens_per_step) /
                  report.step_time_s() / 989.4e12,
              1e-3);
  // What the phases' marks say is what the verdict is about.
  Bytes highest = 0;
  for (const MemoryRow& row : report.memory.rows) highest = std::max(highest, row.allocated_peak);
  EXPECT_EQ(report.memory.peak_allocated, highest);
  EXPECT_FALSE(report.memory.oom());
}

// Who held the peak adds up to it.
TEST(StudySimulate, CategoriesAddUpToThePeak) {
  for (Scenario s : {test::llama_scenario(3, 2, 256), adamw_stack(), test::bag_scenario()}) {
    const StepReport report = run_report(s, simulate(s));
    Bytes sum = 0;
    for (Bytes b : report.memory.by_category) sum += b;
    EXPECT_EQ(sum, report.memory.peak_allocated) << s.name;
  }
}

// Whole schedules under both policies: where no work asks for anything, and where only one runs at a
// time, the shared one is the one in order to the picosecond; host waits, limits, pinned blocks and the
// caching allocator's events included.
TEST(StudySimulate, SharedIsInOrderWhereNothingIsShared) {
  for (const char* file :
       {"small/stack-flat", "small/ddp-stack-flat", "small/zero1-stack", "small/zero3-stack",
        "small/gpt2-a100x4", "small/zero1-torch-a100x4", "llama3-8b-hsdp-h100x64"}) {
    const std::string path = std::string(SHARDSIM_SOURCE_DIR "/scenarios/") + file + ".yaml";
    for (const MemoryLevel memory : {MemoryLevel::live, MemoryLevel::blocks}) {
      Scenario s = load_scenario(path);
      s.cost.sharing = false;
      s.options.memory = memory;
      s.options.max_steps = 2;
      const Simulation in_order = simulate(s, Until::max_steps);
      CostTable costs = price(s, in_order.schedule);
      costs.demand.resize(costs.work.size());
      const std::unique_ptr<Machine> machine = make_machine(s);
      Trace shared;
      machine->play(in_order.schedule, costs, shared);
      EXPECT_EQ(shared.start, in_order.trace.start) << file;
      EXPECT_EQ(shared.end, in_order.trace.end) << file;
      EXPECT_EQ(shared.issued, in_order.trace.issued) << file;
      EXPECT_EQ(shared.reached, in_order.trace.reached) << file;
      EXPECT_EQ(shared.left_out, in_order.trace.left_out) << file;
      EXPECT_EQ(shared.limited, in_order.trace.limited) << file;
    }
  }
  // One GPU and one stream: all that it asks for is its own.
  Scenario s = test::llama_scenario(2, 1, 128);
  s.training.strategy = Strategy::none;
  s.training.mesh.shard = 1;
  s.cost.model = CostChoice::Model::roofline;
  const Simulation on = simulate(s);
  s.cost.sharing = false;
  const Simulation off = simulate(s);
  EXPECT_FALSE(on.trace.slowed.empty());
  EXPECT_EQ(on.trace.end, off.trace.end);
}

Bytes after_forward(const std::string& strategy, const std::string& rope) {
  const Scenario s = parse_scenario(
      "shardsim: 1\n"
      "model: {model_type: llama, vocab_size: 512, hidden_size: 256, intermediate_size: 512,\n"
      "  num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 4, rope: " +
          rope +
          "}\n"
          "cluster: {gpu: h100-sxm5-80gb, gpus_per_node: 1}\n"
          "training: {strategy: " +
          strategy +
          ", seq_len: 128, precision: {storage: bf16}}\n"
          "cost: {model: flat}\n",
      "s.yaml");
  const Simulation sim = simulate(s);
  for (const MarkRow& row : sim.trace.marks)
    if (sim.schedule.marks[row.mark].name == "step1.0.after_forward") return row.allocated;
  return -1;
}

// What DDP adds is its buckets, the same however RoPE is written: transformers' tables, which one stage
// makes for all, are there once as without DDP.
TEST(StudySimulate, TablesThatStagesShareUnderDdp) {
  EXPECT_GT(after_forward("none", "hf"), 0);
  EXPECT_NE(after_forward("none", "hf"), after_forward("none", "complex"));
  EXPECT_EQ(after_forward("ddp", "hf") - after_forward("none", "hf"),
            after_forward("ddp", "complex") - after_forward("none", "complex"));
}

// T5's encoder layers have no second external, the decoder's have: a checkpoint holds what there is.
TEST(StudySimulate, CheckpointsOfStagesWithFewerExternals) {
  const auto peak = [](const std::string& mode) {
    return simulate(parse_scenario("shardsim: 1\n"
                                   "model: {preset: t5-base}\n"
                                   "cluster: {preset: hgx-a100, gpus_per_node: 4}\n"
                                   "training: {strategy: fsdp2, seq_len: 128, micro_batch: 8,\n"
                                   "  activation_checkpointing: {mode: " +
                                       mode + "}}\n",
                                   "s.yaml"))
        .trace.peak;
  };
  EXPECT_LT(peak("selective_op"), peak("none"));
  EXPECT_LT(peak("full"), peak("selective_op"));
}

// flat and roofline price the same schedule; only prices differ.
TEST(StudySimulate, Prices) {
  Scenario s = load_scenario(SHARDSIM_SOURCE_DIR "/scenarios/small/stack-flat.yaml");
  const Simulation flat = simulate(s);
  const CostTable a = price(s, flat.schedule);
  s.cost.model = CostChoice::Model::roofline;
  const CostTable b = price(s, flat.schedule);
  ASSERT_EQ(a.work.size(), flat.schedule.works.size());
  ASSERT_EQ(b.work.size(), flat.schedule.works.size());
  EXPECT_EQ(a.host[HostCall::other], Time{});
  EXPECT_GT(b.host[HostCall::other], Time{});
  for (size_t i = 0; i < a.work.size(); ++i) {
    EXPECT_GE(a.work[i], Time{});
    EXPECT_GE(b.work[i], Time{});
    // A kernel is 10 us under flat, whatever it does.
    if (flat.schedule.works[i].kind == WorkKind::Kernel) {
      EXPECT_EQ(a.work[i], Time::us(10));
    }
  }
}

}  // namespace
}  // namespace shardsim
