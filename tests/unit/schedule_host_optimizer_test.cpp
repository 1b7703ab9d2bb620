// What an offloaded optimizer's step reads and writes on the host, and that a step plays it: counted
// by hand from torch/optim/adam.py and sgd.py (2.15).
#include "sim/schedule/host_optimizer.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/unit/play_scenario.h"

namespace shardsim {
namespace {

using Name = Optimizer::Name;
using Implementation = Optimizer::Implementation;

Optimizer optimizer(Name name, Implementation implementation) {
  Optimizer o;
  o.name = name;
  o.implementation = implementation;
  return o;
}

// mul_ 2, lerp_ 3, mul_ 2, addcmul_ 4, sqrt 2, / 2, add_ 2, addcdiv_ 4; p, g, m, v in one pass 7.
TEST(HostOptimizer, Passes) {
  const HostPasses loop = optimizer_passes(optimizer(Name::adamw, Implementation::forloop));
  EXPECT_EQ(loop.accesses, 21);
  EXPECT_EQ(loop.fresh, 2);
  EXPECT_EQ(loop.operators, 9);
  // The default of a scenario is PyTorch's, and that is the loop on the host.
  EXPECT_EQ(optimizer_passes(optimizer(Name::adamw, Implementation::foreach)).accesses, 21);
  EXPECT_EQ(optimizer_passes(optimizer(Name::adamw, Implementation::fused)).accesses, 7);
  EXPECT_EQ(optimizer_passes(optimizer(Name::adam, Implementation::forloop)).accesses, 19);
  Optimizer sgd = optimizer(Name::sgd, Implementation::forloop);
  EXPECT_EQ(optimizer_passes(sgd).accesses, 3);
  sgd.momentum = true;
  EXPECT_EQ(optimizer_passes(sgd).accesses, 8);
}

// The host's own works of the last step: name, accesses, bytes.
std::string works_of_last_step(const test::Played& p) {
  std::string out;
  p.schedule.for_each_of_last_step([&](const Instr& in, const Segment&) {
    if (in.kind != Kind::HostWork) return;
    const HostWork& w = p.schedule.host_works[in.a];
    out += std::string(w.name) + " " + std::to_string(w.accesses) + " " + std::to_string(w.bytes) +
           "\n";
  });
  return out;
}

// Two blocks of 2 x 64 x 32 parameters in fp32 on 4 ranks: 2,048 a rank.
TEST(HostOptimizer, AStepOfEachStrategy) {
  Scenario s = test::stack_scenario(2, {{64, 32}, {32, 64}}, 4);
  s.training.optimizer.name = Name::adamw;
  EXPECT_EQ(works_of_last_step(test::play(s, 2)), "");
  s.training.fsdp2.cpu_offload = CpuOffload::pinned;
  EXPECT_EQ(works_of_last_step(test::play(s, 2)), "CPU optimizer 43008 172032\n");
  s.training.optimizer.implementation = Implementation::fused;
  EXPECT_EQ(works_of_last_step(test::play(s, 2)), "CPU optimizer 14336 57344\n");

  Scenario one = test::stack_scenario(2, {{64, 32}, {32, 64}}, 4);
  one.model.naming = Naming::recorder_fsdp1;
  one.training.strategy = Strategy::fsdp1;
  one.training.optimizer.name = Name::adamw;
  one.training.fsdp1.cpu_offload = true;
  EXPECT_EQ(works_of_last_step(test::play(one, 2)), "CPU optimizer 43008 172032\n");
  // Norms and the factor, 2 accesses each.
  one.training.clip_grad_norm = 1;
  EXPECT_EQ(works_of_last_step(test::play(one, 2)),
            "CPU gradient clipping 4096 16384\nCPU gradient clipping 4096 16384\n"
            "CPU optimizer 43008 172032\n");
}

// The second pass adds to the gradients that the first has left on the host, parameter by parameter:
// 512 elements, read twice and written.
TEST(HostOptimizer, GradientsAddUpOnTheHost) {
  Scenario s = test::stack_scenario(1, {{64, 32}, {32, 64}}, 4);
  s.training.fsdp2.cpu_offload = CpuOffload::pinned;
  s.training.grad_accum = 2;
  EXPECT_EQ(works_of_last_step(test::play(s)),
            "CPU gradient sum 1536 6144\nCPU gradient sum 1536 6144\n");
}

// Moments are made in the first step: two more fills of each element on new pages.
TEST(HostOptimizer, TheFirstStepMakesTheState) {
  Schedule schedule;
  const Behaviour behaviour = Training{}.behaviour();
  Host host(schedule, behaviour);
  HostOptimizer o(host, optimizer(Name::adamw, Implementation::fused), DType::fp32, {{1000, {}}});
  for (int step = 0; step < 3; ++step) o.step({0});
  ASSERT_EQ(schedule.host_works.size(), 2u);
  EXPECT_EQ(schedule.host_works[0].accesses, 11'000);
  EXPECT_EQ(schedule.host_works[0].fresh, 8'000);
  EXPECT_EQ(schedule.host_works[1].accesses, 7'000);
  EXPECT_EQ(schedule.host_works[1].fresh, 0);
  EXPECT_EQ(schedule.code.size(), 3u);
}

// Temporaries of 32 MiB are new pages each time, smaller ones are used again.
TEST(HostOptimizer, LargeTemporariesAreNewPages) {
  HostWork small, large;
  const HostPasses loop = optimizer_passes(optimizer(Name::adamw, Implementation::forloop));
  add_passes(small, loop, 8 * 1024 * 1024 - 1, DType::fp32);
  add_passes(large, loop, 8 * 1024 * 1024, DType::fp32);
  EXPECT_EQ(small.fresh, 0);
  EXPECT_EQ(large.fresh, 64 * kMiB);
}

}  // namespace
}  // namespace shardsim
