// Vectors 42-50 of fsdp2-runtime section 9: no root parameters, an ideal host, links that nobody
// shares. Prices come from the test through the cost seam: in units, t_f for a layer's forward, t_b
// for its backward (half for each product), AG and RS for the collectives, and nothing for the rest.
#include <gtest/gtest.h>

#include "tests/unit/play_scenario.h"

namespace shardsim {
namespace {

using test::Launched;
using test::play;
using test::Played;
using test::stack_scenario;

struct Units {
  double forward = 0, backward = 0, gather = 0, scatter = 0;
  double copy_in = 0, copy_out = 0, chunk_cat = 0;  // copies
  double reduce = 0;                                // all-reduce
};

// A unit is a microsecond.
test::Price price_of(const Units& u) {
  return [u](const Work& w) {
    const std::string name = w.name;
    if (w.kind == WorkKind::AllGather) return Time::from_us(u.gather);
    if (w.kind == WorkKind::ReduceScatter) return Time::from_us(u.scatter);
    if (w.kind == WorkKind::AllReduce) return Time::from_us(u.reduce);
    if (w.kind == WorkKind::Gemm)
      return Time::from_us(name == "linear" ? u.forward : u.backward / 2);
    if (name == "all_gather_copy_in") return Time::from_us(u.copy_in);
    if (name == "copy_out") return Time::from_us(u.copy_out);
    if (name == "chunk_cat") return Time::from_us(u.chunk_cat);
    return Time{};
  };
}

struct Result {
  // Of each micro-batch: forward until the compute stream's last end, backward from there to the
  // last end on any stream.
  std::vector<double> phases;
  std::vector<double> gathers, scatters, reduces;  // starts, from the step's start
};

Result run(const Scenario& s, const test::Price& price) {
  const Played p = play(s, 1, price);
  Result r;
  Time begin, forward, last;
  int64_t micro = -1;
  std::string section;
  const auto close = [&] {
    if (micro < 0) return;
    r.phases.push_back((forward - begin).as_us());
    r.phases.push_back((last - forward).as_us());
    begin = last;
  };
  for (const Launched& l : launches(p)) {
    if (l.section == "step0.after_zero_grad" || l.section == "after_init") continue;
    const bool is_forward = l.section.ends_with("after_forward");
    if (is_forward && l.section != section) {
      close();
      ++micro;
    }
    section = l.section;
    if (is_forward && l.stream == kCompute) forward = l.end;
    last = std::max(last, l.end);
    if (l.work->kind == WorkKind::AllGather) r.gathers.push_back(l.start.as_us());
    if (l.work->kind == WorkKind::ReduceScatter) r.scatters.push_back(l.start.as_us());
    if (l.work->kind == WorkKind::AllReduce) r.reduces.push_back(l.start.as_us());
  }
  close();
  return r;
}

Result run(const Scenario& s, const Units& u) { return run(s, price_of(u)); }

using L = std::vector<double>;

// The n starts of forward come first.
L head(const L& v, size_t n) { return {v.begin(), v.begin() + static_cast<int64_t>(n)}; }
L tail(const L& v, size_t n) { return {v.begin() + static_cast<int64_t>(n), v.end()}; }

TEST(ScheduleTimeline, Vector42) {
  const Result r = run(stack_scenario(3), Units{25, 50, 10, 10});
  EXPECT_EQ(r.phases, (L{85, 160}));
  // T/overlap's comment says 170, with the first backward all-gather exposed; it starts 25 units
  // before forward ends.
  EXPECT_EQ(r.gathers[3], 60);
  // Copies: copy-in 1, copy-out 2, reduce-scatter copy-in 3.
  EXPECT_EQ(run(stack_scenario(3), Units{25, 50, 10, 10, 1, 2, 3}).phases, (L{92, 175}));
}

TEST(ScheduleTimeline, Vector43) {
  Scenario s = stack_scenario(4);
  EXPECT_EQ(head(run(s, Units{25, 50, 10, 10}).gathers, 4), (L{0, 10, 20, 35}));
  s.training.fsdp2.forward_prefetch = 2;
  EXPECT_EQ(head(run(s, Units{25, 50, 10, 10}).gathers, 4), (L{0, 10, 20, 30}));
}

TEST(ScheduleTimeline, Vector44) {
  const Result r = run(stack_scenario(4), Units{5, 10, 10, 10});
  EXPECT_EQ(r.phases, (L{45, 75}));
  EXPECT_EQ(r.scatters, (L{60, 80, 100, 110}));
}

TEST(ScheduleTimeline, Vector45) {
  Scenario s = stack_scenario(8);
  EXPECT_EQ(run(s, Units{10, 20, 12, 12}).phases, (L{106, 198}));
  s.training.fsdp2.separate_reduce_scatter_group = true;
  EXPECT_EQ(run(s, Units{10, 20, 12, 12}).phases, (L{106, 174}));
}

TEST(ScheduleTimeline, Vector46) {
  Scenario s = stack_scenario(8);
  EXPECT_EQ(run(s, Units{5, 10, 20, 20}).phases, (L{165, 315}));
  s.training.fsdp2.separate_reduce_scatter_group = true;
  EXPECT_EQ(run(s, Units{5, 10, 20, 20}).phases, (L{165, 185}));
}

// Reshard to 2 ranks: backward all-gathers on communicators of their own, from forward's end on.
TEST(ScheduleTimeline, Vector47) {
  Scenario s = stack_scenario(4);
  EXPECT_EQ(run(s, Units{10, 20, 12, 12}).phases[1], 102);
  s.training.fsdp2.reshard_after_forward = {Reshard::Kind::to, 2};
  const Result r = run(s, Units{10, 20, 12, 12});
  EXPECT_EQ(r.phases[1], 104);
  EXPECT_EQ(tail(r.gathers, 4), (L{58, 70, 90, 110}));
  EXPECT_EQ(r.scatters, (L{90, 110, 130, 150}));
  // The small all-gather takes 6: its work is the one whose table is that of 2 ranks; the first four
  // all-gathers to be defined for each group are told apart by their communicator.
  const Played p = play(s, 1, price_of({10, 20, 12, 12}));
  std::vector<int64_t> ranks;
  for (const Launched& l : launches(p))
    if (l.work->kind == WorkKind::AllGather) ranks.push_back(p.schedule.comms[l.work->comm.v].size);
  EXPECT_EQ(ranks, (std::vector<int64_t>{8, 8, 8, 8, 2, 2, 2, 2}));
  const auto small = [&](const Work& w) {
    if (w.kind == WorkKind::AllGather && p.schedule.comms[w.comm.v].size == 2)
      return Time::from_us(6);
    return price_of({10, 20, 12, 12})(w);
  };
  EXPECT_EQ(run(s, small).phases[1], 98);
}

TEST(ScheduleTimeline, Vector48) {
  Scenario s = stack_scenario(3);
  s.training.mesh.replicate = 2;
  Units u{10, 20, 8, 8};
  u.reduce = 30;
  const Result r = run(s, u);
  EXPECT_EQ(r.phases[1], 118);
  EXPECT_EQ(r.reduces, (L{66, 96, 126}));
}

// Reduce-scatters of layers 2, 1, 0 take 30, 5, 5. With one input buffer layer 1 waits for layer 2's.
TEST(ScheduleTimeline, Vector49) {
  Scenario s = stack_scenario(3);
  s.training.fsdp2.reshard_after_forward = {Reshard::Kind::no, 0};
  const auto price = [](const Work& w) {
    if (w.kind == WorkKind::ReduceScatter) return Time::from_us(w.group.v == 2 ? 30 : 5);
    return price_of({10, 20, 8, 0})(w);
  };
  EXPECT_EQ(run(s, price).phases[1], 75);
  s.training.fsdp2.reduce_scatter_max_input_buffers = 2;
  EXPECT_EQ(run(s, price).phases[1], 65);
}

TEST(ScheduleTimeline, Vector50) {
  Scenario s = stack_scenario(3);
  s.training.grad_accum = 2;
  s.training.fsdp2.requires_gradient_sync = Micro::last;
  EXPECT_EQ(run(s, Units{25, 50, 10, 10}).phases, (L{85, 150, 85, 160}));
  s.training.fsdp2.reshard_after_forward = {Reshard::Kind::no, 0};
  s.training.fsdp2.reshard_after_backward = Micro::last;
  EXPECT_EQ(run(s, Units{25, 50, 10, 10}).phases, (L{85, 150, 75, 160}));
}

// Section 6: a backward layer in the steady state takes max(t_b, AG + RS) on one communicator and
// max(t_b, AG, RS) on two. The first minus the second of two depths is one layer.
TEST(ScheduleTimeline, SteadyBackwardLayer) {
  const auto layer = [](const Units& u, bool separate) {
    double t[2];
    for (int i : {0, 1}) {
      Scenario s = stack_scenario(12 + i);
      s.training.fsdp2.separate_reduce_scatter_group = separate;
      t[i] = run(s, u).phases[1];
    }
    return t[1] - t[0];
  };
  EXPECT_EQ(layer({10, 20, 12, 12}, false), 24);
  EXPECT_EQ(layer({10, 20, 12, 12}, true), 20);
  EXPECT_EQ(layer({10, 20, 4, 9}, false), 20);
  EXPECT_EQ(layer({10, 20, 31, 25}, true), 31);
}

}  // namespace
}  // namespace shardsim
