// What simulated schedules move and hold beside the account on paper: the table of
// fsdp1-ddp-zero-runtime section 5, in elements and with padding, and reasons that add up.
#include "sim/report/ledger.h"

#include <gtest/gtest.h>

#include "play_scenario.h"
#include "sim/plan/plan_fsdp1.h"

namespace shardsim {
namespace {

using test::play;
using test::Played;

// Three blocks of (33, 64) and (64, 33) and a root of two (64, 64), all in fp32; 8 ranks do not divide
// the blocks' rows.
Scenario uneven(Strategy strategy) {
  Scenario s = test::rooted_scenario(3);
  s.model.linear_blocks.assign(3, {{33, 64}, {64, 33}});
  s.training.strategy = strategy;
  if (strategy == Strategy::fsdp1) s.model.naming = Naming::recorder_fsdp1;
  s.training.precision.storage = DType::fp32;
  return s;
}

struct Counted {
  int64_t gathered = 0, scattered = 0, all_reduced = 0;
  int64_t all() const { return gathered + scattered + all_reduced; }
};
Counted counted(const Scenario& s, int steps = 2) {
  const auto moved = moved_in_last_step(play(s, steps).schedule);
  const auto of = [&](WorkKind k) { return moved[static_cast<size_t>(k)].elements; };
  return {of(WorkKind::AllGather), of(WorkKind::ReduceScatter), of(WorkKind::AllReduce)};
}

// Elements of the root's groups and of all others, padded.
struct Padded {
  int64_t root = 0, rest = 0, shard = 0;
  int64_t all() const { return root + rest; }
};
Padded padded(const Scenario& s) {
  const Model model = build_model(s.model);
  const Plan plan = build_plan(model, s.training);
  Padded p;
  for (const Group& g : plan.groups) {
    (plan.states[g.state].root ? p.root : p.rest) += g.padded();
    p.shard += g.shard;
  }
  return p;
}

int64_t ring(int64_t elements, int64_t n = 8) { return elements / n * (n - 1); }

TEST(Section5, FullShard) {
  for (const Strategy strategy : {Strategy::fsdp1, Strategy::fsdp2}) {
    const Scenario s = uneven(strategy);
    const Padded p = padded(s);
    EXPECT_EQ(counted(s).all(), ring(3 * p.rest + 2 * p.root));
    Scenario only = s;
    only.training.wrap.policy = WrapPolicy::root_only;
    EXPECT_EQ(counted(only).all(), ring(2 * padded(only).all()));
  }
}

TEST(Section5, ShardGradOp) {
  Scenario s = uneven(Strategy::fsdp1);
  s.training.fsdp1.sharding_strategy = ShardingStrategy::shard_grad_op;
  EXPECT_EQ(counted(s).gathered, ring(padded(s).all()));
  EXPECT_EQ(counted(s).scattered, ring(padded(s).all()));
  s = uneven(Strategy::fsdp2);
  s.training.fsdp2.reshard_after_forward.kind = Reshard::Kind::no;
  EXPECT_EQ(counted(s).all(), ring(2 * padded(s).all()));
}

// An all-reduce of the flat parameters; their 16,896 + 8,192 elements divide by 8.
TEST(Section5, NoShard) {
  Scenario s = uneven(Strategy::fsdp1);
  s.training.fsdp1.sharding_strategy = ShardingStrategy::no_shard;
  EXPECT_EQ(counted(s).all_reduced, ring(2 * padded(s).all()));
  EXPECT_EQ(counted(s).all(), counted(s).all_reduced);
}

// 2 (P / N) (Nr - 1) / Nr on 2 replicas is P / N.
TEST(Section5, Hybrid) {
  Scenario s = uneven(Strategy::fsdp1);
  s.training.mesh.replicate = 2;
  s.training.fsdp1.sharding_strategy = ShardingStrategy::hybrid_shard;
  Padded p = padded(s);
  EXPECT_EQ(counted(s).gathered + counted(s).scattered, ring(3 * p.rest + 2 * p.root));
  EXPECT_EQ(counted(s).all_reduced, p.shard);
  s.training.fsdp1.sharding_strategy = ShardingStrategy::hybrid_shard_zero2;
  EXPECT_EQ(counted(s).all(), ring(2 * p.all()) + p.shard);
  s = uneven(Strategy::fsdp2);
  s.training.mesh.replicate = 2;
  p = padded(s);
  EXPECT_EQ(counted(s).all(), ring(3 * p.rest + 2 * p.root) + p.shard);
}

TEST(Section5, NoSync) {
  Scenario s = uneven(Strategy::fsdp1);
  s.training.grad_accum = 4;
  s.training.fsdp1.no_sync = true;
  const Padded p = padded(s);
  EXPECT_EQ(counted(s).gathered, 4 * ring(2 * p.rest + p.root));
  EXPECT_EQ(counted(s).scattered, ring(p.all()));
  s.training.fsdp1.sharding_strategy = ShardingStrategy::shard_grad_op;
  EXPECT_EQ(counted(s).gathered, ring(p.all()));
  EXPECT_EQ(counted(s).scattered, ring(p.all()));
}

// Stages 1 and 2: all-reduces of what is in the buckets, and one gather of the flat buffer with its
// padding behind the step. Stage 2 reduces in every micro-batch. (The norm and the overflow flag are
// all-reduced too, 3 elements.)
TEST(Section5, DeepSpeed) {
  for (const Strategy strategy : {Strategy::zero1, Strategy::zero2}) {
    Scenario s = test::stack_scenario(3, {{33, 64}, {64, 33}});
    s.training.strategy = strategy;
    s.training.precision.compute = DType::bf16;
    s.training.input_dtype = DType::bf16;
    s.training.grad_accum = 3;
    s.training.optimizer.name = Optimizer::Name::adamw;
    const Model model = build_model(s.model);
    const Group group = build_plan(model, s.training).groups[0];
    const Counted c = counted(s);
    EXPECT_EQ(c.gathered, ring(group.flat));
    EXPECT_EQ(c.scattered, 0);
    const int64_t passes = strategy == Strategy::zero2 ? 3 : 1;
    EXPECT_NEAR(static_cast<double>(c.all_reduced),
                static_cast<double>(passes * 2 * group.numel) * 7 / 8, 8.0);
  }
}

Ledger ledger(const Scenario& s) {
  const Played p = play(s, 2);
  return make_ledger(s, p.model, p.plan, p.schedule, p.trace);
}

Bytes reason(const LedgerEntry& e, std::string_view what) {
  Bytes sum = 0;
  for (const LedgerReason& r : e.reasons)
    if (r.what.find(what) != std::string::npos) sum += r.bytes;
  return sum;
}

// Sizes 3 and 5 in bf16 on 4 ranks: 12 elements for 8. Two gathers of 4 more elements of 2 bytes, of
// which a rank sends 3/4: 12 bytes; one reduction: 6. The formula: 3 x 8 x 2 x 3/4 = 36.
TEST(Ledger, ThreeAndFiveOnFourRanks) {
  Scenario s = test::bag_scenario();
  s.model.hidden = 16;
  s.model.bag_blocks = {{{3}, {5}}};
  s.training.mesh.shard = 4;
  s.training.precision.storage = DType::bf16;
  s.training.optimizer.name = Optimizer::Name::adamw;
  const Ledger l = ledger(s);
  EXPECT_EQ(l.communication.expected, 36);
  EXPECT_EQ(l.communication.simulated, 54);
  EXPECT_EQ(reason(l.communication, "padding that is gathered"), 12);
  EXPECT_EQ(reason(l.communication, "padding that is reduced"), 6);
  // 2 parameters, one gradient, 4 moments, of 512 bytes each; 3 elements stored for 2.
  EXPECT_EQ(l.resident.expected, 8 * (2 * 2 + 8) / 4);
  EXPECT_EQ(l.resident.simulated, 7 * 512);
  EXPECT_EQ(reason(l.resident, "padding of each parameter"), 2);
  EXPECT_EQ(reason(l.resident, "the moments are in bf16"), -8);
}

// fp32 stored and reduced, bf16 computed: P = 4 x 8192 elements on 8 ranks. Parameters and gradients
// 2 P / 8 more each, reductions 2 P 7/8 more.
TEST(Ledger, Fp32BesideBf16) {
  Scenario s = test::stack_scenario(2, {{64, 128}, {128, 64}});
  s.model.naming = Naming::recorder;
  s.model.hidden = 128;
  s.model.linear_blocks.assign(2, {{64, 128}, {128, 64}});
  s.training.precision.compute = DType::bf16;
  s.training.precision.reduce = DType::fp32;
  s.training.optimizer.name = Optimizer::Name::adamw;
  const Ledger l = ledger(s);
  constexpr int64_t kP = 4 * 8192;
  EXPECT_EQ(l.formula.params, kP);
  EXPECT_EQ(reason(l.resident, "parameters are stored in fp32"), 2 * kP / 8);
  EXPECT_EQ(reason(l.resident, "gradients are stored in fp32"), 2 * kP / 8);
  EXPECT_EQ(l.resident.simulated, 16 * kP / 8);
  EXPECT_EQ(reason(l.communication, "gradients are reduced in fp32"), 2 * kP / 8 * 7);
  EXPECT_EQ(l.communication.simulated - l.communication.expected, 2 * kP / 8 * 7);
}

// Stage 2 on 8 ranks, P = 6 x 2112 = 12,672 elements, which divide by 16: P/8 in fp32 more for the
// master, and 7/8 P in bf16 more for the gather behind the step.
TEST(Ledger, Zero2) {
  Scenario s = test::stack_scenario(3, {{33, 64}, {64, 33}});
  s.training.strategy = Strategy::zero2;
  s.training.precision.compute = DType::bf16;
  s.training.input_dtype = DType::bf16;
  s.training.optimizer.name = Optimizer::Name::adamw;
  const Ledger l = ledger(s);
  constexpr int64_t kP = 12'672;
  EXPECT_EQ(l.formula.params, kP);
  EXPECT_EQ(l.formula.scheme, Scheme::zero2);
  EXPECT_EQ(reason(l.resident, "fp32 master"), 4 * kP / 8);
  EXPECT_EQ(reason(l.resident, "otherwise"), 0);
  EXPECT_EQ(reason(l.communication, "behind the optimizer"), 2 * kP / 8 * 7);
}

// No walk leaves anything for "otherwise" in what the strategies themselves do. That all reasons add
// up is asserted where a ledger is made.
TEST(Ledger, EveryStrategyIsExplained) {
  std::vector<Scenario> all;
  for (const auto strategy :
       {ShardingStrategy::full_shard, ShardingStrategy::shard_grad_op, ShardingStrategy::no_shard,
        ShardingStrategy::hybrid_shard, ShardingStrategy::hybrid_shard_zero2})
    for (const bool orig : {false, true}) {
      Scenario s = uneven(Strategy::fsdp1);
      s.training.fsdp1.sharding_strategy = strategy;
      s.training.fsdp1.use_orig_params = orig;
      const bool hybrid = strategy == ShardingStrategy::hybrid_shard ||
                          strategy == ShardingStrategy::hybrid_shard_zero2;
      if (hybrid) s.training.mesh.replicate = 2;
      all.push_back(s);
    }
  for (const int64_t replicas : {1, 2})
    for (const auto kind : {Reshard::Kind::standard, Reshard::Kind::no, Reshard::Kind::yes}) {
      Scenario s = uneven(Strategy::fsdp2);
      s.training.mesh.replicate = replicas;
      s.training.fsdp2.reshard_after_forward.kind = kind;
      all.push_back(s);
    }
  Scenario replicated = uneven(Strategy::fsdp2);
  replicated.training.mesh = {8, 1};
  all.push_back(replicated);
  for (Scenario& s : all)
    for (const bool mixed : {false, true})
      for (const int64_t passes : {1, 3}) {
        s.training.grad_accum = passes;
        s.training.optimizer.name = Optimizer::Name::adamw;
        if (mixed) {
          s.training.precision.compute = DType::bf16;
          s.training.precision.reduce = DType::fp32;
        }
        const Ledger l = ledger(s);
        SCOPED_TRACE(l.strategy + " " + std::string(name_of(l.formula.scheme)) +
                     (mixed ? " mixed, " : ", ") + std::to_string(passes) + " passes");
        for (const LedgerEntry* e : {&l.resident, &l.peak, &l.communication})
          for (const LedgerReason& r : e->reasons) {
            EXPECT_EQ(r.what.find("otherwise"), std::string::npos)
                << e->name << " " << r.what << r.bytes;
            EXPECT_EQ(r.what.find("other:"), std::string::npos) << e->name << " " << r.what;
          }
      }
}

}  // namespace
}  // namespace shardsim
