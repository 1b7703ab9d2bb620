// What FSDP2 issues, and in which order: vectors 12 and 15-30 of fsdp2-runtime section 9.
//
// Covered of 14-50: 14 (plan_wrap_test.cpp); 15-30 here; 31 and 32 by the recordings test_transformer_*;
// 33-41 in schedule_memory_test.cpp; 42-50 in schedule_timeline_test.cpp, with 2.15's values. 10 is in
// plan_layout_test.cpp, 13 here.
#include "sim/schedule/fsdp2.h"

#include <gtest/gtest.h>

#include "tests/unit/play_scenario.h"

namespace shardsim {
namespace {

using test::CollectiveCounts;
using test::play;
using test::Played;
using test::rooted_scenario;
using test::runtime_log;
using test::stack_scenario;

constexpr Reshard kYes{Reshard::Kind::yes, 0};
constexpr Reshard kNo{Reshard::Kind::no, 0};

void reshard_all(Scenario& s, Reshard r) {
  s.training.fsdp2.reshard_after_forward = r;
  s.training.fsdp2.root_reshard = r;
}

// n: (pre, post), W R ranks; fp32 and bf16 let the reduction average.
TEST(ScheduleFsdp2, Vector12) {
  const struct {
    int64_t n;
    double pre, post;
  } rows[] = {{1, 1, 1}, {2, 2, 1},  {3, 2, 1.5}, {4, 2, 2},   {6, 4, 1.5},
              {8, 4, 2}, {16, 4, 4}, {64, 8, 8},  {128, 16, 8}};
  for (const auto& r : rows) {
    const DivideFactors f = divide_factors(DType::fp16, r.n);
    EXPECT_EQ(f.pre, r.pre) << r.n;
    EXPECT_EQ(f.post, r.post) << r.n;
    for (DType t : {DType::fp32, DType::bf16}) {
      EXPECT_EQ(divide_factors(t, r.n).pre, 1);
      EXPECT_EQ(divide_factors(t, r.n).post, 1);
    }
  }
}

// W 4, f 4, fp32: the reduce-scatter averages; f 8: PREMUL_SUM; (2, 2) HSDP, f 4: PREMUL_SUM, and the
// all-reduce sums. Without a factor both average; fp16 divides by hand and sums.
TEST(ScheduleFsdp2, Vector13) {
  using Ops = std::vector<std::pair<WorkKind, ReduceOp>>;
  const auto ops = [](Mesh mesh, double factor, DType reduce = DType::fp32) {
    Scenario s = stack_scenario(1, {{64, 64}});
    s.training.mesh = mesh;
    s.training.precision.reduce = reduce;
    if (factor > 0) {
      StateSetting& x = s.training.fsdp2.settings.emplace_back();
      x.pattern = "*";
      x.gradient_divide_factor = factor;
    }
    const Played p = play(s);
    Ops out;
    for (const auto& l : launches(p))
      if (l.work->kind == WorkKind::ReduceScatter || l.work->kind == WorkKind::AllReduce)
        out.emplace_back(l.work->kind, l.work->op);
    return out;
  };
  constexpr WorkKind kScatter = WorkKind::ReduceScatter, kReduce = WorkKind::AllReduce;
  EXPECT_EQ(ops({1, 4}, 4), (Ops{{kScatter, ReduceOp::avg}}));
  EXPECT_EQ(ops({1, 4}, 8), (Ops{{kScatter, ReduceOp::premul_sum}}));
  EXPECT_EQ(ops({2, 2}, 4), (Ops{{kScatter, ReduceOp::premul_sum}, {kReduce, ReduceOp::sum}}));
  EXPECT_EQ(ops({1, 4}, 0), (Ops{{kScatter, ReduceOp::avg}}));
  EXPECT_EQ(ops({2, 2}, 0), (Ops{{kScatter, ReduceOp::avg}, {kReduce, ReduceOp::avg}}));
  EXPECT_EQ(ops({2, 2}, 0, DType::fp16),
            (Ops{{kScatter, ReduceOp::sum}, {kReduce, ReduceOp::sum}}));
}

// Section 5g: frozen parameters are gathered with their group and absent from its reduction; a group
// of frozen ones only is not reduced.
TEST(ScheduleFsdp2, Frozen) {
  Scenario s = stack_scenario(3, {{64, 32}, {32, 64}}, 4);
  s.training.frozen = {"layers.1.0.weight", "layers.2.*"};
  const Played p = play(s);
  EXPECT_EQ(runtime_log(p, "u")["step0.0.after_forward"], "u0 u1 u2");
  std::map<std::string, Bytes> gathered, reduced;
  for (const auto& l : launches(p)) {
    if (l.work->kind == WorkKind::AllGather) gathered[group_name(p, l.work->group)] = l.work->bytes;
    if (l.work->kind == WorkKind::ReduceScatter)
      reduced[group_name(p, l.work->group)] = l.work->bytes;
  }
  const Bytes weight = 64 * 32 * 4;
  EXPECT_EQ(gathered, (std::map<std::string, Bytes>{
                          {"0", 2 * weight}, {"1", 2 * weight}, {"2", 2 * weight}}));
  EXPECT_EQ(reduced, (std::map<std::string, Bytes>{{"0", 2 * weight}, {"1", weight}}));
}

// fp16: one division before and one after each reduce-scatter, on its stream; (2, 1) at two ranks
// needs no second one.
TEST(ScheduleFsdp2, DivisionKernels) {
  const auto kernels = [](DType reduce, int64_t ranks) {
    Scenario s = stack_scenario(2, {{64, 64}}, ranks);
    s.training.precision.compute = s.training.precision.reduce = reduce;
    const Played p = play(s);
    int n = 0;
    for (const auto& l : launches(p))
      n += l.stream == kReduceScatter && l.work->kind == WorkKind::Kernel &&
           std::string(l.work->name) == "div";
    return n;
  };
  EXPECT_EQ(kernels(DType::fp16, 8), 4);
  EXPECT_EQ(kernels(DType::fp16, 2), 2);
  EXPECT_EQ(kernels(DType::bf16, 8), 0);
}

// n blocks + root: forward n+1 all-gathers. RAF None: backward n, reduce-scatters n+1; True or 2:
// backward n+1; False: 0.
TEST(ScheduleFsdp2, Vectors15To17) {
  for (int n : {1, 3, 4}) {
    const struct {
      Reshard raf, root;
      int backward;
    } rows[] = {{{}, {}, n},
                {kYes, kYes, n + 1},
                {{Reshard::Kind::to, 2}, {Reshard::Kind::to, 2}, n + 1},
                {kNo, kNo, 0}};
    for (const auto& r : rows) {
      Scenario s = rooted_scenario(n);
      s.training.fsdp2.reshard_after_forward = r.raf;
      s.training.fsdp2.root_reshard = r.root;
      const Played p = play(s, 2);
      for (const char* step : {"step0", "step1"}) {
        const std::string forward = std::string(step) + ".0.after_forward";
        EXPECT_EQ(collectives(p, forward), (CollectiveCounts{n + 1, 0, 0})) << n;
        EXPECT_EQ(collectives(p, std::string(step) + ".0.after_backward"),
                  (CollectiveCounts{r.backward, n + 1, 0}))
            << n;
      }
    }
  }
}

// Root linear + 3 MLPs, 3 micro-batches; per step (all-gather, reduce-scatter, all-reduce).
Scenario three_mlps() {
  Scenario s = stack_scenario(3, {{256, 64}, {64, 256}}, 4);
  s.model.root_first = {64, 64};
  s.model.input_grad = false;
  s.training.grad_accum = 3;
  return s;
}

TEST(ScheduleFsdp2, Vectors18To20) {
  Scenario s = three_mlps();
  s.training.fsdp2.requires_gradient_sync = Micro::last;
  reshard_all(s, kYes);
  EXPECT_EQ(collectives(play(s, 2), "step1"), (CollectiveCounts{24, 4, 0}));
  reshard_all(s, kNo);
  EXPECT_EQ(collectives(play(s, 2), "step1"), (CollectiveCounts{12, 4, 0}));
  s.training.fsdp2.reshard_after_backward = Micro::last;
  EXPECT_EQ(collectives(play(s, 2), "step0"), (CollectiveCounts{4, 4, 0}));
  EXPECT_EQ(collectives(play(s, 2), "step1"), (CollectiveCounts{4, 4, 0}));
}

// Settings of single modules, three micro-batches. 21: two of three MLPs do not synchronize before
// the last: (24, 8, 0). 22: only the root does not, and it alone stays unsharded after forward and
// backward; the others reduce each time: 3 x 3 + 1 reduce-scatters, and all-gathers likewise where
// nothing is resharded after forward.
TEST(ScheduleFsdp2, Vectors21And22) {
  Scenario s = three_mlps();
  const auto set = [&](const char* pattern) {
    StateSetting& x = s.training.fsdp2.settings.emplace_back();
    x.pattern = pattern;
    x.requires_gradient_sync = Micro::last;
    return &x;
  };
  reshard_all(s, kYes);
  set("layers.0");
  set("layers.1");
  EXPECT_EQ(collectives(play(s, 2), "step1"), (CollectiveCounts{24, 8, 0}));

  s = three_mlps();
  reshard_all(s, kNo);
  set("")->reshard_after_backward = Micro::last;
  EXPECT_EQ(collectives(play(s, 2), "step1"), (CollectiveCounts{10, 10, 0}));
}

// CPUOffloadPolicy: shards come up one by one before the copy-in, gradients go down one by one, and
// the host waits for each at the end; pageable memory makes it wait at once. Counts are those of
// the recordings offload_pinned and offload_unpinned: two parameters a group.
TEST(ScheduleFsdp2, Offload) {
  Scenario s = stack_scenario(2, {{64, 32}, {32, 64}}, 4);
  const auto count = [](const Played& p, WorkKind kind) {
    int n = 0;
    for (const auto& l : launches(p)) n += l.work->kind == kind && l.work->bytes == 64 * 32 * 4 / 4;
    return n;
  };
  for (const CpuOffload o : {CpuOffload::pinned, CpuOffload::pageable}) {
    s.training.fsdp2.cpu_offload = o;
    const Played p = play(s);
    EXPECT_EQ(count(p, WorkKind::CopyH2D), 2 * 2 * 2);  // forward and backward
    EXPECT_EQ(count(p, WorkKind::CopyD2H), 2 * 2);
    int events = 0, streams = 0;
    p.schedule.for_each([&](const Instr& in, const Segment&) {
      events += in.kind == Kind::HostWait;
      streams += in.kind == Kind::StreamSync;
    });
    EXPECT_EQ(events, o == CpuOffload::pinned ? 4 : 0);
    EXPECT_EQ(streams, o == CpuOffload::pinned ? 0 : 4);
  }
}

// A second mesh makes a second group of its state. In backward the second group prefetches both of the
// module before, the second first (recording second_mesh: all-gathers of 4 and 8 ranks alternate).
TEST(ScheduleFsdp2, SecondMesh) {
  Scenario s = stack_scenario(2, {{64, 32}, {32, 64}}, 8);
  s.training.fsdp2.second_mesh = {{"*.1.weight"}, 4};
  const Played p = play(s);
  std::vector<int64_t> ranks;
  for (const auto& l : launches(p))
    if (l.work->kind == WorkKind::AllGather) ranks.push_back(p.schedule.comms[l.work->comm.v].size);
  EXPECT_EQ(ranks, (std::vector<int64_t>{8, 4, 8, 4, 8, 4, 4, 8}));
}

// (2,2) HSDP, reduce-scatter in every micro-batch, all-reduce in the last: RS 12, AR 4.
TEST(ScheduleFsdp2, Vector23) {
  Scenario s = three_mlps();
  s.training.mesh = {2, 2};
  s.training.fsdp2.requires_all_reduce = Micro::last;
  const CollectiveCounts c = collectives(play(s, 2), "step1");
  EXPECT_EQ(c.reduce_scatter, 12);
  EXPECT_EQ(c.all_reduce, 4);
  // HSDP that synchronizes each time reduces over both.
  s.training.fsdp2.requires_all_reduce = Micro::each;
  EXPECT_EQ(collectives(play(s, 2), "step1").all_reduce, 12);
}

// T/comm, 3 layers: u real unshard, p post_backward. The same with checkpointing, whose
// recomputation gathers nothing.
TEST(ScheduleFsdp2, Vectors24To26) {
  for (auto mode : {Checkpointing::Mode::none, Checkpointing::Mode::full}) {
    Scenario s = rooted_scenario(3);
    s.training.checkpointing.mode = mode;
    reshard_all(s, kYes);
    auto log = runtime_log(play(s, 2), "up");
    for (const char* step : {"step0", "step1"}) {
      EXPECT_EQ(log[std::string(step) + ".0.after_forward"], "uroot u0 u1 u2");
      EXPECT_EQ(log[std::string(step) + ".0.after_backward"], "uroot u2 u1 p2 u0 p1 p0 proot");
    }
    s.training.fsdp2 = {};
    log = runtime_log(play(s, 2), "up");
    EXPECT_EQ(log["step1.0.after_forward"], "uroot u0 u1 u2");
    EXPECT_EQ(log["step1.0.after_backward"], "u2 u1 p2 u0 p1 p0 proot");
    reshard_all(s, kNo);
    log = runtime_log(play(s, 2), "up");
    EXPECT_EQ(log["step1.0.after_forward"], "uroot u0 u1 u2");
    EXPECT_EQ(log["step1.0.after_backward"], "p2 p1 p0 proot");
  }
}

// 4 layers, explicit forward prefetch 1 and 2; r reshard.
TEST(ScheduleFsdp2, Vectors27And28) {
  Scenario s = rooted_scenario(4);
  reshard_all(s, kYes);
  s.training.fsdp2.forward_prefetch = 1;
  EXPECT_EQ(runtime_log(play(s, 2))["step1.0.after_forward"],
            "uroot u0 u1 r0 u2 r1 u3 r2 r3 rroot");
  s.training.fsdp2.forward_prefetch = 2;
  EXPECT_EQ(runtime_log(play(s, 2))["step1.0.after_forward"],
            "uroot u0 u1 u2 r0 u3 r1 r2 r3 rroot");
}

// Backward prefetch 2 (layers 2 and 3 prefetch explicitly).
TEST(ScheduleFsdp2, Vector29) {
  Scenario s = rooted_scenario(4);
  reshard_all(s, kYes);
  s.training.fsdp2.backward_prefetch = 2;
  EXPECT_EQ(runtime_log(play(s, 2))["step1.0.after_backward"],
            "uroot u3 u2 u1 r3 p3 u0 r2 p2 r1 p1 r0 p0 rroot proot");
}

// Two forwards, one backward: vector 30 without the post-backwards that reduce nothing, those of the
// second forward's graph, which runs first.
TEST(ScheduleFsdp2, Vector30) {
  Scenario s = stack_scenario(3);
  s.training.forwards = 2;
  EXPECT_EQ(runtime_log(play(s), "up")["step0.0.after_backward"], "u2 u1 u0 u2 u1 p2 u0 p1 p0");
}

// Consequence (iv) of section 4: AG(n), AG(n-1), RS(n), AG(n-2), RS(n-1), ..., AG(0), RS(1), RS(0).
TEST(ScheduleFsdp2, BackwardIssueOrder) {
  EXPECT_EQ(runtime_log(play(stack_scenario(5)), "up")["step0.0.after_backward"],
            "u4 u3 p4 u2 p3 u1 p2 u0 p1 p0");
}

// Consequence (v): the first block of a model whose input needs no gradient reduces in the final
// callback, after every other block, and before the root (all_states is pre-order, and the root's
// groups come first).
TEST(ScheduleFsdp2, FirstBlockWithoutInputGradient) {
  Scenario s = stack_scenario(3, {{64, 64}, {64, 64}});
  s.model.input_grad = false;
  const Played p = play(s);
  EXPECT_EQ(runtime_log(p, "up")["step0.0.after_backward"], "u2 u1 p2 u0 p1 p0");
  // With the gradient, block 0 frees its parameters before its reduction, from a hook; without it
  // the block's last product runs first, and there is one product fewer in the step.
  Scenario with = s;
  with.model.input_grad = true;
  const auto products = [](const Played& q) {
    int n = 0;
    for (const auto& l : launches(q)) n += l.work->kind == WorkKind::Gemm;
    return n;
  };
  EXPECT_EQ(products(play(with)), 6 + 12);
  EXPECT_EQ(products(p), 6 + 11);
}

// A synchronous collective: record, the collective, record, a wait of its own stream (2.15).
TEST(ScheduleFsdp2, CallsOfACollective) {
  const Played p = play(stack_scenario(2));
  std::vector<std::pair<Kind, StreamId>> calls;
  std::vector<uint32_t> works;
  p.schedule.for_each([&](const Instr& in, const Segment&) {
    calls.emplace_back(in.kind, in.stream);
    works.push_back(in.kind == Kind::Launch ? in.a : UINT32_MAX);
  });
  int seen = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (works[i] == UINT32_MAX || !is_collective(p.schedule.works[works[i]].kind)) continue;
    ++seen;
    const StreamId s = calls[i].second;
    EXPECT_EQ(calls[i - 1], (std::pair{Kind::Record, s}));
    EXPECT_EQ(calls[i + 1], (std::pair{Kind::Record, s}));
    EXPECT_EQ(calls[i + 2], (std::pair{Kind::WaitUnlessDone, s}));
  }
  EXPECT_EQ(seen, 2 + 2 + 2);
}

// One rank: no collectives at all; replicas alone (shard 1) all-reduce whole gradients.
TEST(ScheduleFsdp2, OneRank) {
  Scenario s = stack_scenario(3, {{64, 64}}, 1);
  EXPECT_EQ(collectives(play(s), "step0"), (CollectiveCounts{0, 0, 0}));
  s.training.mesh.replicate = 8;
  const Played p = play(s);
  EXPECT_EQ(collectives(p, "step0"), (CollectiveCounts{0, 0, 3}));
  for (const auto& l : launches(p)) {
    if (l.work->kind != WorkKind::AllReduce) continue;
    EXPECT_EQ(l.work->bytes, 64 * 64 * 4);
  }
}

// Bytes: padded group in compute type; padded group in reduce type; 1/shard of that. HSDP 2 x 4,
// one [64, 64] weight a block.
TEST(ScheduleFsdp2, BytesOfCollectives) {
  Scenario s = stack_scenario(2, {{66, 64}, {64, 66}}, 4);
  s.training.mesh.replicate = 2;
  s.training.precision.compute = DType::bf16;
  s.training.precision.reduce = DType::fp32;
  // 66 rows on 4 ranks pad to 68: 68 * 64 + 64 * 66 = 8576 elements.
  const Played p = play(s);
  const std::map<WorkKind, std::pair<Bytes, int64_t>> expected{
      {WorkKind::AllGather, {8576 * 2, 4}},
      {WorkKind::ReduceScatter, {8576 * 4, 4}},
      {WorkKind::AllReduce, {8576, 2}}};
  for (const auto& l : launches(p)) {
    if (!is_collective(l.work->kind)) continue;
    EXPECT_EQ(std::pair(l.work->bytes, p.schedule.comms[l.work->comm.v].size),
              expected.at(l.work->kind));
  }
}

// Many-tensor kernels take ceil(chunks / 2300) launches, chunks of 65,536 elements: 2300 parameters
// of one element are one launch, 2301 are two. Cast and copy each.
TEST(ScheduleFsdp2, CopyInLaunches) {
  const auto launched = [](int params) {
    Scenario s = test::bag_scenario(1);
    s.model.bag_blocks = {{}};
    for (int i = 0; i < params; ++i) s.model.bag_blocks[0].push_back({8});
    s.training.precision.compute = DType::bf16;
    const Played p = play(s);
    int n = 0;
    for (const auto& l : launches(p))
      n += l.stream == kCopyIn && l.section == "step0.0.after_forward";
    return n;
  };
  EXPECT_EQ(launched(2), 2);
  EXPECT_EQ(launched(2300), 2);
  EXPECT_EQ(launched(2301), 4);
}

// kernel-sequence 6: C = 8 (6n + 2 + sum ceil(e_i / 2048)): 426,448 B for a Llama-3-8B block on 8
// ranks in fp32, whose padded shards are 2,097,152 elements (q, o), 524,288 (k, v), 7,340,032
// (gate, up, down) and 512 (norms): blocks of 2048 B: 2*4096 + 2*1024 + 3*14336 + 2 = 53,250.
TEST(ScheduleFsdp2, PointerTables) {
  Scenario s = test::llama_scenario(1, 1, 128);
  s.model.vocab = 128256;
  s.model.hidden = 4096;
  s.model.ffn = 14336;
  s.model.heads = 32;
  s.model.kv_heads = 8;
  s.model.head_dim = 128;
  const Played p = play(s);
  std::map<std::string, std::vector<Bytes>> tables;
  for (const auto& l : launches(p))
    if (std::string(l.work->name) == "chunk_cat_table")
      tables[group_name(p, l.work->group)].push_back(l.work->bytes);
  EXPECT_EQ(tables["0"], (std::vector<Bytes>{426'448}));
  // Its root: embedding and head of 65,667,072 elements a shard, a norm: 2,052,264 B.
  EXPECT_EQ(tables["root"], (std::vector<Bytes>{2'052'264}));
}

}  // namespace
}  // namespace shardsim
