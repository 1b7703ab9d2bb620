// The compute stream call by call: kernel-sequence.md sections 3, 4 and 9, and recomputation. k is a
// kernel, g a product in cuBLAS's sizes, m a memset, d a copy on the device.
#include <gtest/gtest.h>

#include "tests/unit/play_scenario.h"

namespace shardsim {
namespace {

using test::Launched;
using test::play;
using test::Played;

std::string text(const Work& w) {
  switch (w.kind) {
    case WorkKind::Gemm:
      return "g(" + std::to_string(w.m) + "," + std::to_string(w.n) + "," + std::to_string(w.k) +
             ")";
    case WorkKind::Memset: return "m:" + std::to_string(w.bytes);
    case WorkKind::CopyD2D: return "d:" + std::to_string(w.bytes);
    default: return "k";
  }
}

// The operators of one group's modules in a section; recomputed ones only, or only the others.
std::string operators(const Played& p, const std::string& section, const std::string& group,
                      bool recomputed = false) {
  std::string out;
  for (const Launched& l : launches(p))
    if (l.section == section && l.compute.valid() && group_name(p, l.compute) == group &&
        l.work->recomputed == recomputed)
      out += (out.empty() ? "" : " ") + text(*l.work);
  return out;
}

// h 512, f 1536, n d 512, k d 256 and 512, T 256.
TEST(ScheduleKernels, LlamaBlock) {
  Scenario s = test::llama_scenario(2, 1, 256);
  const std::string forward =
      "k g(512,256,512) g(256,256,512) g(256,256,512) k g(512,256,512) k k g(1536,256,512) k "
      "g(1536,256,512) k g(512,256,1536) k";
  const std::string mlp =
      "g(1536,512,256) g(1536,256,512) k k g(512,1536,256) g(512,256,1536) k g(512,1536,256) "
      "g(512,256,1536) k k k k";
  Played p = play(s, 2);
  for (const char* step : {"step0", "step1"}) {
    EXPECT_EQ(operators(p, std::string(step) + ".0.after_forward", "1"), forward);
    EXPECT_EQ(operators(p, std::string(step) + ".0.after_backward", "1"),
              mlp +
                  " g(512,512,256) g(512,256,512) k k k k k g(512,256,256) g(512,256,256) "
                  "g(512,256,256) g(512,256,256) k g(512,512,256) g(512,256,512) k k k k");
  }
  // As many key as query heads: no sums of dk and dv.
  s.model.kv_heads = 8;
  p = play(s);
  EXPECT_EQ(operators(p, "step0.0.after_backward", "1"),
            mlp +
                " g(512,512,256) g(512,256,512) k k k g(512,512,256) g(512,256,512) "
                "g(512,512,256) g(512,256,512) k g(512,512,256) g(512,256,512) k k k k");
}

// Root: k(embedding) ... k(norm) g(V,T,h), cast, log-softmax, nll; backward: a fill, m:4TV k k k,
// head dW dx, norm k k, blocks, embedding m:V h k (T <= 3072).
TEST(ScheduleKernels, LlamaRoot) {
  const Scenario s = test::llama_scenario(1, 1, 256);
  const Played p = play(s);
  EXPECT_EQ(operators(p, "step0.0.after_forward", "root"), "k k g(2048,256,512)");
  EXPECT_EQ(operators(p, "step0.0.after_backward", "root"),
            "g(512,2048,256) g(512,256,2048) k k m:2097152 k");
  std::string loss;
  for (const Launched& l : launches(p))
    if (!l.compute.valid() && l.stream == kCompute && l.section == "step0.0.after_forward" &&
        l.work->group == GroupId{} && l.work->kind != WorkKind::CopyH2D)
      loss += text(*l.work) + " ";
  EXPECT_EQ(loss, "m:2048 k k k ");  // the batch first
}

// Full: the forward less its last product and add. Operator-selective: every second product (o, k,
// up), norms, silu, mul and the first residual add.
TEST(ScheduleKernels, Recomputation) {
  Scenario s = test::llama_scenario(2, 1, 256);
  const std::string plain = operators(play(s), "step0.0.after_backward", "1");
  s.training.checkpointing.mode = Checkpointing::Mode::full;
  Played p = play(s);
  EXPECT_EQ(operators(p, "step0.0.after_backward", "1", true),
            "k g(512,256,512) g(256,256,512) g(256,256,512) k g(512,256,512) k k g(1536,256,512) "
            "k g(1536,256,512) k");
  EXPECT_EQ(operators(p, "step0.0.after_backward", "1"), plain);
  EXPECT_EQ(operators(p, "step0.0.after_forward", "1", true), "");
  s.training.checkpointing.mode = Checkpointing::Mode::selective_op;
  p = play(s);
  EXPECT_EQ(operators(p, "step0.0.after_backward", "1", true),
            "k g(256,256,512) g(512,256,512) k k k g(1536,256,512) k");
  // Blocks 0, 2, ... only.
  s.training.checkpointing.mode = Checkpointing::Mode::every_k;
  s.training.checkpointing.every = 2;
  p = play(s);
  EXPECT_NE(operators(p, "step0.0.after_backward", "0", true), "");
  EXPECT_EQ(operators(p, "step0.0.after_backward", "1", true), "");
}

// Recomputation comes after the group's copy-out and the next group's prefetch.
TEST(ScheduleKernels, RecomputationFollowsThePrefetch) {
  Scenario s = test::llama_scenario(2, 1, 256);
  s.training.checkpointing.mode = Checkpointing::Mode::full;
  const Played p = play(s);
  std::string order;
  for (const Launched& l : launches(p)) {
    if (l.section != "step0.0.after_backward") continue;
    const bool of_block = l.work->group.valid() || l.compute.valid();
    if (!of_block) continue;
    if (l.work->kind == WorkKind::AllGather) order += "u" + group_name(p, l.work->group) + " ";
    if (l.work->kernel == KernelClass::copy_out && l.work->kind == WorkKind::Kernel)
      order += "c" + group_name(p, l.work->group) + " ";
    if (l.work->recomputed && !order.ends_with("R ")) order += "R ";
  }
  EXPECT_EQ(order, "u1 c1 u0 R c0 R ");
}

// h 256, f 1024, T 256: no memset in the bias sums; T 1024: m:4 ceil(out / 128).
TEST(ScheduleKernels, Gpt2Block) {
  Scenario s = test::gpt2_scenario(2, 1, 256);
  Played p = play(s);
  EXPECT_EQ(operators(p, "step0.0.after_forward", "1"),
            "k g(768,256,256) k g(256,256,256) k k g(1024,256,256) k g(256,256,1024) k");
  EXPECT_EQ(operators(p, "step0.0.after_backward", "1"),
            "g(1024,256,256) g(256,1024,256) k k g(256,256,1024) g(1024,256,256) k k k k "
            "g(256,256,256) g(256,256,256) k k k k k g(256,256,768) g(768,256,256) k k k k");
  s.training.micro_batch = 4;
  p = play(s);
  EXPECT_EQ(operators(p, "step0.0.after_backward", "1"),
            "g(1024,1024,256) g(256,1024,1024) m:8 k k g(256,1024,1024) g(1024,256,1024) m:32 k k "
            "k k g(256,1024,256) g(256,256,1024) m:8 k k k k k g(256,1024,768) g(768,256,1024) "
            "m:24 k k k k");
}

// Before the blocks: embedding, arange, embedding, add. After them in backward: wpe k m:P h k, wte
// m:V h k, and one more to add the two gradients where the table is tied. V 1000, h 256, P 1024.
TEST(ScheduleKernels, Gpt2Root) {
  Scenario s = test::gpt2_scenario(1, 1, 256);
  s.model.tied = false;
  const Played p = play(s);
  EXPECT_EQ(operators(p, "step0.0.after_forward", "root"), "k k k k k g(1000,256,256)");
  EXPECT_EQ(operators(p, "step0.0.after_backward", "root"),
            "g(256,1000,256) g(256,256,1000) k k k m:524288 k m:512000 k");
  const auto kernels = [](const Played& q) {
    int n = 0;
    for (const Launched& l : launches(q))
      n += l.section == "step0.0.after_backward" && l.stream == kCompute &&
           l.work->kind == WorkKind::Kernel;
    return n;
  };
  s.model.tied = true;
  EXPECT_EQ(kernels(play(s)), kernels(p) + 1);
}

// Section 9, on two [1024, 1024] weights: AdamW foreach 8 kernels, in the first step two memsets a
// parameter of its local 524,288 B; fused 2; SGD 1; momentum for-loop a copy and a kernel each, later
// 3 kernels each; zero_grad(set_to_none=False) 1.
TEST(ScheduleKernels, Optimizers) {
  const auto sequence = [](Optimizer o, const std::string& section) {
    Scenario s = test::stack_scenario(2);
    s.training.optimizer = o;
    const Played p = play(s, 2);
    std::string out;
    for (const Launched& l : launches(p))
      if (l.section == section) out += (out.empty() ? "" : " ") + text(*l.work);
    return out;
  };
  using O = Optimizer;
  const O adamw{O::Name::adamw, O::Implementation::foreach, false, false, 0, false, true};
  EXPECT_EQ(sequence(adamw, "step0.after_optimizer"),
            "m:524288 m:524288 m:524288 m:524288 k k k k k k k k");
  EXPECT_EQ(sequence(adamw, "step1.after_optimizer"), "k k k k k k k k");
  EXPECT_EQ(sequence(adamw, "step1.after_zero_grad"), "");
  EXPECT_EQ(sequence({O::Name::adamw, O::Implementation::fused, false, false, 0, false, true},
                     "step1.after_optimizer"),
            "k k");
  EXPECT_EQ(sequence({O::Name::sgd, O::Implementation::foreach, false, false, 0, false, false},
                     "step1.after_optimizer"),
            "k");
  EXPECT_EQ(sequence({O::Name::sgd, O::Implementation::foreach, false, false, 0, false, false},
                     "step1.after_zero_grad"),
            "k");
  const O momentum{O::Name::sgd, O::Implementation::forloop, true, false, 0, false, true};
  EXPECT_EQ(sequence(momentum, "step0.after_optimizer"), "d:524288 k d:524288 k");
  EXPECT_EQ(sequence(momentum, "step1.after_optimizer"), "k k k k k k");
}

// Unsynchronized micro-batches: one kernel a parameter after its dW (and after dx, since a linear's
// dW is transposed by a node of its own), the cast in the first, the addition in the others, the
// synchronizing one included.
TEST(ScheduleKernels, AccumulationKernels) {
  Scenario s = test::stack_scenario(2);
  s.training.precision.compute = DType::bf16;
  s.training.precision.reduce = DType::fp32;
  s.training.grad_accum = 3;
  s.training.fsdp2.requires_gradient_sync = Micro::last;
  const Played p = play(s);
  for (const char* micro : {"0", "1", "2"}) {
    const std::string section = std::string("step0.") + micro + ".after_backward";
    EXPECT_EQ(operators(p, section, "0"), "g(1024,1024,64) g(1024,64,1024) k") << micro;
  }
  s.training.fsdp2.requires_gradient_sync = Micro::each;
  EXPECT_EQ(operators(play(s), "step0.1.after_backward", "0"), "g(1024,1024,64) g(1024,64,1024)");
}

}  // namespace
}  // namespace shardsim
