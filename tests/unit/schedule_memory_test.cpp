// When buffers live: vectors 33-41 of fsdp2-runtime section 9 (the toy, in MiB, 2.15's values), and
// what a step keeps of each layer. Counted by walking the schedule's allocs and frees.
#include <gtest/gtest.h>

#include "tests/unit/play_scenario.h"

namespace shardsim {
namespace {

using test::bag_scenario;
using test::live_memory;
using test::play;
using test::SectionMemory;

// The vectors count groups only. Activations, pointer tables and a loss come on top: less than 8 KiB
// in all, while the values are multiples of 256 KiB.
double mib(Bytes b) {
  return static_cast<double>(b / (8 * kKiB) * (8 * kKiB)) / static_cast<double>(kMiB);
}

struct Toy {
  double forward_peak, after_forward, backward_peak, end;
  friend bool operator==(const Toy&, const Toy&) = default;
};

std::ostream& operator<<(std::ostream& out, const Toy& t) {
  return out << t.forward_peak << "/" << t.after_forward << "/" << t.backward_peak << "/" << t.end;
}

Toy toy_of(const Scenario& s, int micro_batch = 0) {
  // Both steps are alike: there is no optimizer.
  const auto m = live_memory(play(s, 2).schedule);
  Toy out[2];
  for (int step : {0, 1}) {
    const std::string name = "step" + std::to_string(step) + "." + std::to_string(micro_batch);
    const SectionMemory &f = m.at(name + ".after_forward"), &b = m.at(name + ".after_backward");
    out[step] = {mib(f.peak), mib(f.end), mib(b.peak), mib(b.end)};
  }
  EXPECT_EQ(out[0], out[1]);
  return out[1];
}

Scenario bf16(DType reduce) {
  Scenario s = bag_scenario();
  s.training.precision.compute = DType::bf16;
  s.training.precision.reduce = reduce;
  return s;
}

// fp32, True. Pools: forward D 6, CI 8; backward D 14, CI 4, RS 2.
TEST(ScheduleMemory, Vector33) {
  const Scenario s = bag_scenario();
  EXPECT_EQ(toy_of(s), (Toy{10, 2, 19, 4}));
  const auto m = live_memory(play(s).schedule);
  const auto forward = m.at("step0.0.after_forward").pool_peak,
             backward = m.at("step0.0.after_backward").pool_peak;
  EXPECT_EQ(mib(forward.at(kCompute)), 6);
  EXPECT_EQ(mib(forward.at(kCopyIn)), 8);
  EXPECT_EQ(mib(backward.at(kCompute)), 14);
  EXPECT_EQ(mib(backward.at(kCopyIn)), 4);
  EXPECT_EQ(mib(backward.at(kReduceScatter)), 2);
}

// 2.7's values of #33, #35 and #41 (section 9 there): the held all-gather output goes after the next
// copy-out, one U more in forward; gradients of an unsynchronized micro-batch are cast in post-backward.
TEST(ScheduleMemory, ToyIn27) {
  Scenario s = bag_scenario(), t = bf16(DType::fp32);
  s.training.pytorch = t.training.pytorch = "2.7";
  EXPECT_EQ(toy_of(s), (Toy{14, 2, 19, 4}));
  EXPECT_EQ(toy_of(t), (Toy{8, 2, 13, 4}));
  t.training.grad_accum = 2;
  t.training.fsdp2.requires_gradient_sync = Micro::last;
  t.model.scale = true;
  EXPECT_EQ(toy_of(t, 0).backward_peak, 20);
  EXPECT_EQ(toy_of(t, 1).backward_peak, 24.5);
}

TEST(ScheduleMemory, Vector34) {
  Scenario s = bag_scenario();
  s.training.fsdp2.reshard_after_forward = {Reshard::Kind::no, 0};
  EXPECT_EQ(toy_of(s), (Toy{22, 18, 22.5, 4}));
}

TEST(ScheduleMemory, Vectors35To37) {
  EXPECT_EQ(toy_of(bf16(DType::fp32)), (Toy{6.25, 2, 13, 4}));
  EXPECT_EQ(toy_of(bf16(DType::bf16)), (Toy{6.25, 2, 11, 4}));
  Scenario hsdp = bf16(DType::bf16);
  hsdp.training.mesh.replicate = 2;
  EXPECT_EQ(toy_of(hsdp), (Toy{6.25, 2, 11.5, 4}));
}

// Two reduce-scatter inputs alive.
TEST(ScheduleMemory, Vector38) {
  Scenario s = bf16(DType::fp32);
  s.training.fsdp2.reduce_scatter_max_input_buffers = 2;
  EXPECT_EQ(toy_of(s), (Toy{6.25, 2, 17, 4}));
}

TEST(ScheduleMemory, Vector39) {
  Scenario s = bag_scenario();
  s.training.fsdp2.reshard_after_forward = {Reshard::Kind::to, 2};
  EXPECT_EQ(toy_of(s), (Toy{18, 10, 22.5, 4}));
}

TEST(ScheduleMemory, Vector40) {
  Scenario s = bag_scenario();
  s.training.fsdp2.forward_prefetch = 1;
  EXPECT_EQ(toy_of(s).forward_peak, 14);
  s.training.fsdp2.forward_prefetch = 2;
  EXPECT_EQ(toy_of(s).forward_peak, 18);
}

// #35 without sync in the first micro-batch; dense gradients: backward 22, end 18; then forward
// 22.25, after forward 18, backward 24.5, end 4. Expanded ones are never materialized: 20 and 24.
// The program that has dense gradients doubles its parameters first, a copy of 2 MiB in forward, so
// 22.25 is seen where they are expanded (with the copy: 8392192 and 25169408 B recorded).
TEST(ScheduleMemory, Vector41) {
  Scenario s = bf16(DType::fp32);
  s.training.grad_accum = 2;
  s.training.fsdp2.requires_gradient_sync = Micro::last;
  s.model.scale = true;
  EXPECT_EQ(toy_of(s, 0), (Toy{8, 2, 22, 18}));
  EXPECT_EQ(toy_of(s, 1), (Toy{24, 18, 24.5, 4}));
  s.model.scale = false;
  EXPECT_EQ(toy_of(s, 0), (Toy{6.25, 2, 20, 18}));
  EXPECT_EQ(toy_of(s, 1), (Toy{22.25, 18, 24, 4}));
}

// Section 7: backward peak of L >= 3 uniform groups, RAF True:
// U (2p + g + c r) + L S o + (L-2) S o, + (L-2) S r for HSDP with r != o. Here U 2^20, S 2^17.
TEST(ScheduleMemory, BackwardPeakOfUniformGroups) {
  for (int layers : {3, 4, 7}) {
    for (int cap : {1, 2}) {
      if (layers < cap + 2) continue;  // the last layers prefetch nothing
      Scenario s = bf16(DType::bf16);
      s.model.bag_blocks.assign(static_cast<size_t>(layers), {{4096, 256}});
      s.training.fsdp2.reduce_scatter_max_input_buffers = cap;
      const double u = 1, shard = 0.125;  // Mi elements
      const double peak = u * (2 * 2 + 2 + cap * 2) + layers * shard * 4 + (layers - 2) * shard * 4;
      EXPECT_EQ(toy_of(s).backward_peak, peak) << layers << " layers, cap " << cap;
      s.training.mesh.replicate = 2;
      EXPECT_EQ(toy_of(s).backward_peak, peak + (layers - 2) * shard * 2) << layers << " " << cap;
    }
  }
}

// What one layer more adds to the live bytes after forward, less its shards: memory-model.md B, "Per
// layer, byte-exact". Flash keeps 16 + 8 bytes and the efficient kernel 8 + 8: two blocks of 512.
Bytes kept_by_a_layer(Scenario s) {
  Bytes after[2];
  for (int i : {0, 1}) {
    s.model.layers = 2 + i;
    const test::Played p = play(s);
    Bytes shards = 0;
    for (const Group& g : p.plan.groups)
      for (const ShardedParam& q : g.params)
        shards += round_block(q.shard * bytes_of(s.training.precision.storage));
    after[i] = live_memory(p.schedule).at("step0.0.after_forward").end - shards;
  }
  return after[1] - after[0];
}

void llama3_8b(Scenario& s) {
  s.model.vocab = 128256;
  s.model.hidden = 4096;
  s.model.ffn = 14336;
  s.model.heads = 32;
  s.model.kv_heads = 8;
  s.model.head_dim = 128;
}

TEST(ScheduleMemory, LayerOfLlama) {
  // h 512, f 1536, n 8, k 4, d 64, T 512: e T (4h + 2nd + 2kd + 4f) + 8T + 4nT.
  const int64_t t = 512, features = 4 * 512 + 2 * 512 + 2 * 256 + 4 * 1536;
  Scenario s = test::llama_scenario(2, 2, 256);
  EXPECT_EQ(kept_by_a_layer(s), t * (2 * features + 8 + 32) + 1024);
  s.training.precision = {};
  EXPECT_EQ(kept_by_a_layer(s), t * (4 * features + 8 + 32) + 1024);
  // Llama-3-8B: 168,072 bytes a token.
  s = test::llama_scenario(2, 1, 2048);
  llama3_8b(s);
  EXPECT_EQ(kept_by_a_layer(s), 2048 * 168'072 + 1024);
}

// Full: the block's input. Operator-selective: e T (2h + 2nd + kd + f) + 4nT, 63,616 a token for
// Llama-3-8B.
TEST(ScheduleMemory, LayerWithCheckpointing) {
  Scenario s = test::llama_scenario(2, 1, 2048);
  llama3_8b(s);
  s.training.checkpointing.mode = Checkpointing::Mode::full;
  EXPECT_EQ(kept_by_a_layer(s), 2048 * 2 * 4096);
  s.training.checkpointing.mode = Checkpointing::Mode::selective_op;
  EXPECT_EQ(kept_by_a_layer(s), 2048 * 63'616 + 1024);
}

// 32Th (bf16), 64Th (fp32), + 16T + 4nT.
TEST(ScheduleMemory, LayerOfGpt2) {
  Scenario s = test::gpt2_scenario(2, 2, 256);
  const int64_t t = 512;
  EXPECT_EQ(kept_by_a_layer(s), t * (32 * 256 + 16 + 16) + 1024);
  s.training.precision = {};
  EXPECT_EQ(kept_by_a_layer(s), t * (64 * 256 + 16 + 16) + 1024);
}

// Logits, bytes each: bf16 to a float loss forward peak 10, after it 4 (`pred` is dropped), backward
// peak 12; fp32 8, 4, 12. The loss holds the step's peak: what twice the vocabulary adds, less the
// root's parameters (unsharded from its forward on), is the logits' share. T 512.
TEST(ScheduleMemory, Logits) {
  for (const bool narrow : {true, false}) {
    SectionMemory forward[2], backward[2];
    for (const int i : {0, 1}) {
      Scenario s = test::llama_scenario(1, 2, 256);
      s.model.vocab = 32768 << i;
      if (!narrow) s.training.precision = {};
      const test::Played p = play(s);
      const auto m = live_memory(p.schedule);
      const Group& root = p.plan.groups.back();
      const Bytes parameters = root.padded() * (narrow ? 2 : 4) + root.shard * 4;
      forward[i] = m.at("step0.0.after_forward");
      backward[i] = m.at("step0.0.after_backward");
      for (SectionMemory* x : {&forward[i], &backward[i]}) {
        x->peak -= parameters;
        x->end -= parameters;
      }
    }
    const int64_t logits = 512 * 32768;
    EXPECT_EQ(forward[1].peak - forward[0].peak, (narrow ? 10 : 8) * logits);
    EXPECT_EQ(forward[1].end - forward[0].end, 4 * logits);
    EXPECT_EQ(backward[1].peak - backward[0].peak, 12 * logits);
  }
}

// Everything is freed: the bytes at a step's end are those at its begin, from the second step on.
TEST(ScheduleMemory, StepsLeaveNothing) {
  Scenario s = test::llama_scenario(2, 1, 128);
  s.training.optimizer.name = Optimizer::Name::adamw;
  s.training.grad_accum = 2;
  s.training.fsdp2.requires_gradient_sync = Micro::last;
  const auto m = live_memory(play(s, 3).schedule);
  EXPECT_EQ(m.at("step1.after_zero_grad").end, m.at("step0.after_zero_grad").end);
  EXPECT_EQ(m.at("step2.after_zero_grad").end, m.at("step0.after_zero_grad").end);
  EXPECT_GT(m.at("step0.after_zero_grad").end, m.at("after_init").end);
}

// AdamW: two states in the parameter's type at the first step; foreach needs P bytes more for a
// moment, fused nothing (its step counter is 4 bytes a parameter, a block of 512 each).
TEST(ScheduleMemory, Optimizers) {
  const auto added = [](Optimizer::Name name, Optimizer::Implementation how, bool momentum) {
    Scenario s = test::stack_scenario(2, {{1024, 1024}});
    s.training.optimizer = {name, how, momentum, false, 0, false, true};
    const auto m = live_memory(play(s, 2).schedule);
    const Bytes before = m.at("step1.0.after_backward").end;
    return std::pair{m.at("step1.after_optimizer").end - m.at("after_init").end,
                     m.at("step1.after_optimizer").peak - before};
  };
  const Bytes p = 2 * 1024 * 1024 * 4 / 8;  // of a rank
  using O = Optimizer;
  // State and gradients are there when the step ends.
  EXPECT_EQ(added(O::Name::adamw, O::Implementation::foreach, false), (std::pair{3 * p, p}));
  EXPECT_EQ(added(O::Name::adamw, O::Implementation::fused, false),
            (std::pair{3 * p + 2 * 512, Bytes{0}}));
  EXPECT_EQ(added(O::Name::sgd, O::Implementation::foreach, false), (std::pair{p, Bytes{0}}));
  EXPECT_EQ(added(O::Name::sgd, O::Implementation::foreach, true), (std::pair{2 * p, Bytes{0}}));
  // One tensor at a time: the largest g_(i-1) + 2 g_i; two equal tensors of p / 2 each.
  EXPECT_EQ(added(O::Name::adamw, O::Implementation::forloop, false).second, 3 * p / 2);
}

}  // namespace
}  // namespace shardsim
