// Compiled blocks: the counts, bytes and peaks of spec/compiled.md (read off recordings of PyTorch
// 2.15), and Inductor's reuse of buffers on graphs written by hand. Whole programs are compared with
// recordings in study_conform_test.cpp.
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/model/compiled.h"
#include "tests/unit/play_scenario.h"

namespace shardsim {
namespace {

using test::live_memory;
using test::play;

using Mode = Checkpointing::Mode;

// One GPU, parameters in bf16 (fp32 where asked), no optimizer.
Scenario one_gpu(RopeForm rope, Mode mode, Compile compile = Compile::blocks) {
  Scenario s = test::llama_scenario(1, 2, 256);
  s.model.naming = Naming::recorder_compiled;
  s.model.rope = rope;
  s.training.strategy = Strategy::none;
  s.training.mesh = {};
  s.training.wrap.policy = WrapPolicy::root_only;
  s.training.precision = {};
  s.training.precision.storage = DType::bf16;
  s.training.checkpointing.mode = mode;
  s.training.compile = compile;
  return s;
}

// 1280 wide and 4096 rows: both norms' backward is one mixed-order reduction.
Scenario wide(Scenario s) {
  s.model.hidden = 1280;
  s.model.ffn = 3456;
  s.model.heads = 10;
  s.model.kv_heads = 2;
  s.model.head_dim = 128;
  s.training.micro_batch = 2;
  s.training.seq_len = 2048;
  return s;
}

// Kernels of a block's backward besides products, those of the root not among them: what a second
// block adds.
int backward_kernels(Scenario s) {
  const auto count = [](const Scenario& of) {
    int n = 0;
    const test::Played played = play(of);
    for (const test::Launched& l : test::launches(played))
      n += l.section == "step0.0.after_backward" && l.work->kind == WorkKind::Kernel;
    return n;
  };
  const int one = count(s);
  s.model.layers = 2;
  return count(s) - one;
}

// compiled.md 4, with GQA: plain and mixed.
TEST(Compiled, BackwardKernels) {
  struct Row {
    RopeForm rope;
    Mode mode;
    int plain, mixed, eager;
  };
  const Row rows[] = {{RopeForm::none, Mode::none, 11, 13, 17},
                      {RopeForm::complex, Mode::none, 18, 20, 25},
                      {RopeForm::hf, Mode::none, 13, 15, 29},
                      {RopeForm::complex, Mode::selective_op, 25, 27, 36},
                      {RopeForm::hf, Mode::selective_op, 16, 18, 44},
                      {RopeForm::complex, Mode::full, 27, 29, 37}};
  for (const Row& r : rows) {
    const Scenario s = one_gpu(r.rope, r.mode);
    EXPECT_EQ(backward_kernels(s), r.plain);
    EXPECT_EQ(backward_kernels(wide(s)), r.mixed);
    EXPECT_EQ(backward_kernels(one_gpu(r.rope, r.mode, Compile::none)), r.eager);
  }
  // fp32: efficient attention, a library call with kernels of its own.
  Scenario s = one_gpu(RopeForm::hf, Mode::full);
  s.training.precision.storage = DType::fp32;
  EXPECT_EQ(backward_kernels(s), 19);
}

// compiled.md 2: none 5, complex 11, hf 7 kernels, attention among them; one GPU.
TEST(Compiled, ForwardKernels) {
  const auto count = [](const Scenario& s) {
    int n = 0;
    const test::Played played = play(s);
    for (const test::Launched& l : test::launches(played))
      n += l.section == "step0.0.after_forward" && l.work->kernel != KernelClass::pointwise &&
           (l.work->kernel == KernelClass::fused || l.work->kernel == KernelClass::attention ||
            l.work->kernel == KernelClass::strided);
    return n;
  };
  EXPECT_EQ(count(one_gpu(RopeForm::none, Mode::none)), 5);
  EXPECT_EQ(count(one_gpu(RopeForm::complex, Mode::none)), 11);
  EXPECT_EQ(count(one_gpu(RopeForm::hf, Mode::full)), 7);
}

Scenario llama3_8b_block(Mode mode, Compile compile) {
  Scenario s = one_gpu(RopeForm::complex, mode, compile);
  s.model.hidden = 4096;
  s.model.ffn = 14336;
  s.model.heads = 32;
  s.model.kv_heads = 8;
  s.model.head_dim = 128;
  s.model.vocab = 256;
  s.training.micro_batch = 1;
  s.training.seq_len = 8192;
  s.training.optimizer.name = Optimizer::Name::none;
  return s;
}

// compiled.md 5. e 2, T 8192, h = N 4096, K 1024, f 14336, n 32:
//   none       e T (4 h + 2 N + 2 K + 3 f) + 8 T + 4 n T + 2 * 512 = 1,141,965,824
//   selective  e T (h + 2 N + K + f) + 4 n T + 2 * 512             =   454,034,432
//   full       e T h                                               =    67,108,864
TEST(Compiled, KeptByForward) {
  const auto kept = [](Mode mode, Compile compile) {
    Scenario s = llama3_8b_block(mode, compile);
    const auto of = [&] { return live_memory(play(s).schedule).at("step0.0.after_forward").end; };
    const Bytes one = of();
    s.model.layers = 2;
    // A second block's parameters: 2 (2 h + 2 h N + 2 h K + 3 h f) bytes.
    const Bytes weights = 2 * (2 * 4096LL + 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336);
    return of() - one - weights;
  };
  EXPECT_EQ(kept(Mode::none, Compile::blocks), 1'141'965'824);
  EXPECT_EQ(kept(Mode::selective_op, Compile::blocks), 454'034'432);
  EXPECT_EQ(kept(Mode::full, Compile::blocks), 67'108'864);
  // Eager keeps silu(gate), e T f, or down's output, e T h, besides.
  EXPECT_EQ(kept(Mode::none, Compile::none), 1'141'965'824 + 2 * 8192 * 14336);
  EXPECT_EQ(kept(Mode::selective_op, Compile::none), 454'034'432 + 2 * 8192 * 4096);
}

// compiled.md 6: one block, in MB above the step's start (forward) and the end of forward (backward).
TEST(Compiled, Peaks) {
  struct Row {
    Mode mode;
    Compile compile;
    double forward, backward;
  };
  const Row rows[] = {{Mode::none, Compile::blocks, 1314.0, 278.9},
                      {Mode::none, Compile::none, 1548.9, 513.8},
                      {Mode::selective_op, Compile::blocks, 856.8, 1235.2},
                      {Mode::selective_op, Compile::none, 1293.0, 1436.6},
                      {Mode::full, Compile::blocks, 704.7, 1706.1},
                      {Mode::full, Compile::none, 906.0, 1823.5}};
  for (const Row& r : rows) {
    const auto memory = live_memory(play(llama3_8b_block(r.mode, r.compile)).schedule);
    const test::SectionMemory& f = memory.at("step0.0.after_forward");
    const Bytes start = memory.at("after_init").end;
    EXPECT_NEAR(static_cast<double>(f.peak - start) / 1e6, r.forward, 0.06);
    EXPECT_NEAR(static_cast<double>(memory.at("step0.0.after_backward").peak - f.end) / 1e6,
                r.backward, 0.06);
  }
}

// compiled.md 7: above what is saved, backward makes e T V for the logits' gradient and nothing else.
// 512 rows of 2048 words in bf16 are 2 MiB; two row vectors of 2048 B, the loss and its count stay.
TEST(Compiled, Loss) {
  const CompiledShape shape = [] {
    CompiledShape s;
    s.what = CompiledShape::What::loss;
    s.tokens = 512;
    s.vocab = 2048;
    return s;
  }();
  CompiledContext x;
  const CompiledGraph g = compile(shape, x);
  const auto allocated = [](const CompiledPass& p) {
    std::vector<Bytes> out;
    for (const OpAction& a : p.actions)
      if (a.act == Act::alloc) out.push_back(a.bytes);
    return out;
  };
  EXPECT_EQ(allocated(g.forward), (std::vector<Bytes>{2048, 2048, 4, 4}));
  EXPECT_EQ(allocated(g.backward), (std::vector<Bytes>{2 * 1024 * 1024}));
  EXPECT_EQ(g.saved.size(), 4U);
}

std::string text(const CompiledPass& p) {
  std::string out;
  for (const OpAction& a : p.actions)
    out += (a.act == Act::alloc  ? "+" + std::to_string(a.slot)
            : a.act == Act::free ? "-" + std::to_string(a.slot)
                                 : a.name) +
           std::string(" ");
  return out;
}

using Owner = GraphWriter::Owner;

// x -> a -> b -> c of one size: b is written over a, and c takes x's place in nothing, since x is the
// caller's.
TEST(Compiled, WritesOver) {
  const OpContext x;
  GraphWriter g(x);
  const auto in = g.input(512, DType::bf16, Owner::caller);
  const auto a = g.tensor(512, DType::bf16), b = g.tensor(512, DType::bf16),
             c = g.tensor(512, DType::bf16);
  g.kernel("f", {in}, {a});
  g.kernel("g", {a}, {{b, {a}}});
  g.kernel("h", {b, in}, {{c, {in}}});
  EXPECT_EQ(text(g.finish({c}, {})), "+1 f g +2 h -1 ");
}

// A dead buffer is taken by the next of its type and size where the call before freed it; one that died
// earlier only where keeping it does not lift the estimated peak. Sizes 512 (a, d) and 4096 (b, c):
// a dies at g; at h b and c are live, the peak of 8192, so a's 512 would lift it.
TEST(Compiled, TakesDeadBuffers) {
  const OpContext x;
  const auto graph = [&](DType last, bool low) {
    GraphWriter g(x);
    const auto in = g.input(512, DType::bf16, Owner::caller);
    const auto a = g.tensor(512, DType::bf16), b = g.tensor(4096, DType::bf16),
               c = g.tensor(low ? 1024 : 4096, DType::bf16), d = g.tensor(512, last);
    g.kernel("f", {in}, {a});
    g.kernel("g", {a}, {b});
    g.kernel("h", {b}, {c});
    g.kernel("i", {c}, {d});
    return text(g.finish({d}, {}));
  };
  EXPECT_EQ(graph(DType::bf16, false), "+1 f +2 g -1 +3 h -2 +4 i -3 ");
  // c of 1024 B: b and c are 5120, with a 5632; the peak is 5120 too, and a is not kept.
  EXPECT_EQ(graph(DType::bf16, true), "+1 f +2 g -1 +3 h -2 +4 i -3 ");
  GraphWriter g(x);
  const auto in = g.input(512, DType::bf16, Owner::caller);
  const auto a = g.tensor(512, DType::bf16), b = g.tensor(512, DType::bf16),
             c = g.tensor(512, DType::bf16), d = g.tensor(512, DType::fp32);
  g.kernel("f", {in}, {a});
  g.kernel("g", {a}, {b});
  g.kernel("h", {b}, {c});  // a died at g, right before: c is a
  g.kernel("i", {c}, {d});  // b died at h, but d is fp32
  EXPECT_EQ(text(g.finish({d}, {})), "+1 f +2 g h -2 +3 i -1 ");
}

// What this build has no graph for is refused with the key.
TEST(Compiled, Refused) {
  const auto refused = [](const Scenario& s) {
    try {
      play(s);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  Scenario s = one_gpu(RopeForm::none, Mode::none);
  EXPECT_EQ(refused(s), "");
  s.training.checkpointing = {Mode::full, 1, "", false, true};
  EXPECT_NE(refused(s).find("reentrant checkpoint breaks the graph"), std::string::npos);
  s = one_gpu(RopeForm::none, Mode::none);
  s.model.experts = 4;
  EXPECT_NE(refused(s).find("mixture of experts"), std::string::npos);
  s = test::llama_scenario(2, 1, 512);
  s.training.compile = Compile::blocks;
  s.training.wrap.policy = WrapPolicy::nested;
  EXPECT_NE(refused(s).find("inside the compiled block 'layers.0'"), std::string::npos);
}

}  // namespace
}  // namespace shardsim
