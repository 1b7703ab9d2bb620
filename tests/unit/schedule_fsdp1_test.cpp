// FSDP1's schedules: vectors 3 and 5 (layout, of scenarios), 19-29 and 35 of fsdp1-ddp-zero-runtime
// section 8. The toy: 3 units of one linear and a root whose linear costs nothing, host cost 0,
// AG = RS = 2 (the root's 1), F = 3, B = 6, half for each product, every other kernel 0, one
// communicator.
//
// A log has the host's calls in order: AG1 an all-gather of unit 1, F1 and B1 its products of
// forward and backward, fr1 its unsharded parameters freed, SYNC(fr1) the host waits for the event
// recorded behind that, RS1 and AR1. The vectors' noop[R], an all-gather of what is gathered already,
// shows only in the wait of the limiter before it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/schedule/fsdp1.h"
#include "tests/unit/play_scenario.h"

namespace shardsim {
namespace {

using test::Played;
using BackwardPrefetch = Fsdp1Options::BackwardPrefetch;

struct Units {
  double gather = 2, scatter = 2, root = 1, reduce = 0;
};

constexpr int64_t kRootFeatures = 32;

Scenario toy(int units = 3) {
  Scenario s = test::stack_scenario(units, {{64, 64}});
  s.model.naming = Naming::recorder_fsdp1;
  s.model.root_last = {kRootFeatures, 64};
  s.training.strategy = Strategy::fsdp1;
  s.cost.flat.host_us = 0;
  return s;
}

Scenario toy(BackwardPrefetch prefetch, bool limiter, int units = 3) {
  Scenario s = toy(units);
  s.training.fsdp1.backward_prefetch = prefetch;
  s.training.fsdp1.limit_all_gathers = limiter;
  return s;
}

struct Call {
  std::string what;
  double start = 0, end = 0;  // of a launch, from the step's first one on
  bool backward = false;
};

struct Log {
  std::vector<Call> calls;
  double end = 0;
  int peak_gathered = 0;  // unsharded storages that are live or not yet reusable
  std::string queue;      // free events that nobody waited for, over all steps

  std::string text() const {
    std::string out;
    for (const Call& c : calls) out += (out.empty() ? "" : " ") + c.what;
    return out;
  }
  std::string forward() const { return part(false); }
  std::string backward() const { return part(true); }
  std::string part(bool backward) const {
    std::string out;
    for (const Call& c : calls)
      if (c.backward == backward) out += (out.empty() ? "" : " ") + c.what;
    return out;
  }
  // "16-18", of the forward's or the backward's.
  std::string when(const std::string& what, bool backward) const {
    for (const Call& c : calls)
      if (c.what == what && c.backward == backward) return fmt::format("{}-{}", c.start, c.end);
    return "none";
  }
  int count(const std::string& prefix) const {
    return static_cast<int>(std::count_if(
        calls.begin(), calls.end(), [&](const Call& c) { return c.what.starts_with(prefix); }));
  }
};

// The last of `steps` steps.
Log run(const Scenario& s, int steps = 1, Units u = {}) {
  const auto price = [&](const Work& w) {
    const bool root = w.group.valid() && w.group.v == s.model.linear_blocks.size();
    if (w.kind == WorkKind::AllGather) return Time::from_us(root ? u.root : u.gather);
    if (w.kind == WorkKind::ReduceScatter) return Time::from_us(root ? u.root : u.scatter);
    if (w.kind == WorkKind::AllReduce) return Time::from_us(u.reduce);
    if (w.kind == WorkKind::Gemm && std::min({w.m, w.n, w.k}) > kRootFeatures)
      return Time::from_us(3);
    return Time{};
  };
  const Played p = test::play(s, steps, price);
  const std::string name = "step" + std::to_string(steps - 1) + ".";
  const auto named = [&](const char* what, GroupId g) {
    const std::string unit = test::group_name(p, g);
    return what + (unit == "root" ? "[R]" : std::to_string(std::stoi(unit) + 1));
  };
  Log log;
  struct Storage {
    std::vector<double> gone;  // when each freed one can be used again
    int live = 0;
  } storage;
  std::vector<double> stream(p.schedule.streams.size());  // the last end so far
  std::map<uint32_t, std::string> recorded;
  std::vector<std::string> queue;
  std::vector<Call> step;
  std::string freed;
  StreamId used_on = 0;
  size_t launch = 0;
  double origin = -1, issued = 0;
  int peak = 0;
  p.schedule.for_each([&](const Instr& in, const Segment& segment) {
    const bool ours = in.kind == Kind::Alloc || in.kind == Kind::Free || in.kind == Kind::UseOn;
    const Buffer* b = ours ? &p.schedule.buffers[segment.buffer(in).v] : nullptr;
    const bool full = b && b->category == Category::unsharded_parameters && b->pool == kUnshard;
    switch (in.kind) {
      case Kind::Mark: {
        const std::string& mark = p.schedule.marks[in.a].name;
        if (!mark.starts_with(name)) {
          step.clear();
          origin = -1;
          peak = 0;
        }
        if (mark.ends_with("after_forward") || mark.ends_with("after_backward"))
          for (Call& c : step)
            if (mark.ends_with("after_backward")) c.backward = true;
        if (mark.starts_with(name)) {
          log.calls.insert(log.calls.end(), step.begin(), step.end());
          step.clear();
          log.peak_gathered = peak;
        }
        break;
      }
      case Kind::Launch: {
        const Work& w = p.schedule.works[in.a];
        const double start = p.trace.start[launch].as_us(), end = p.trace.end[launch].as_us();
        issued = p.trace.issued[launch].as_us();
        ++launch;
        stream[in.stream] = std::max(stream[in.stream], end);
        std::string what;
        if (w.kind == WorkKind::AllGather) what = named("AG", w.group);
        if (w.kind == WorkKind::ReduceScatter) what = named("RS", w.group);
        if (w.kind == WorkKind::AllReduce) what = named("AR", w.group);
        if (w.kind == WorkKind::Gemm && end > start)
          what = named(std::string(w.name) == "linear" ? "F" : "B", segment.group);
        if (w.kind == WorkKind::AllGather) {
          if (origin < 0) origin = start;
          // The allocation came just before, and asked what has become reusable.
          std::erase_if(storage.gone, [&](double t) { return t <= issued; });
          peak = std::max(peak, storage.live + static_cast<int>(storage.gone.size()));
        }
        if (what.empty()) break;
        if (step.empty() || step.back().what != what) step.push_back({what, start - origin});
        step.back().end = end - origin;
        break;
      }
      case Kind::Alloc: storage.live += full; break;
      case Kind::UseOn:
        if (full) used_on = in.stream;
        break;
      case Kind::Free:
        if (!full) break;
        --storage.live;
        if (used_on != b->pool) storage.gone.push_back(stream[used_on]);
        freed = named("fr", b->group);
        step.push_back({freed});
        break;
      case Kind::Record:
        if (freed.empty()) break;
        recorded[in.a] = freed;
        queue.push_back(freed.substr(2));
        freed.clear();
        break;
      case Kind::HostWait: {
        const std::string& what = recorded.at(in.a);
        step.push_back({"SYNC(" + what + ")"});
        queue.erase(std::find(queue.begin(), queue.end(), what.substr(2)));
        break;
      }
      default: break;
    }
  });
  for (const Call& c : log.calls) log.end = std::max(log.end, c.end);
  for (const std::string& q : queue) log.queue += (log.queue.empty() ? "" : ",") + q;
  return log;
}

Plan plan_of(const Scenario& s) { return build_plan(build_model(s.model), s.training); }

// (3, 5) on 4 ranks in bf16: FSDP2 holds ceil(3/4) + ceil(5/4) = 3 elements a rank.
TEST(ScheduleFsdp1, Vector3) {
  Scenario s = test::bag_scenario(1);
  s.model.bag_blocks = {{{3}, {5}}};
  s.training.mesh.shard = 4;
  s.training.precision.storage = DType::bf16;
  EXPECT_EQ(plan_of(s).groups.at(0).shard, 3);
}

// The same stored in fp32, computed in bf16, use_orig_params: laid out as in bf16 (vector 2).
TEST(ScheduleFsdp1, Vector5) {
  Scenario s = test::bag_scenario(1);
  s.model.naming = Naming::recorder_fsdp1;
  s.model.bag_blocks = {{{3}, {5}}};
  s.training.strategy = Strategy::fsdp1;
  s.training.mesh.shard = 4;
  s.training.precision.compute = DType::bf16;
  s.training.fsdp1.use_orig_params = true;
  const Plan p = plan_of(s);
  EXPECT_EQ(p.groups.at(0).flat, 16);
  EXPECT_EQ(p.groups.at(0).shard, 4);
}

TEST(ScheduleFsdp1, Vector19) {
  const Log log = run(toy(BackwardPrefetch::pre, false));
  EXPECT_EQ(log.text(),
            "AG[R] AG1 F1 fr1 AG2 F2 fr2 AG3 F3 fr3 AG3 AG2 B3 fr3 RS3 AG1 B2 fr2 RS2 B1 fr1 RS1 "
            "fr[R] RS[R]");
  EXPECT_EQ(log.count("AG"), 7);
  EXPECT_EQ(log.count("RS"), 4);
  EXPECT_EQ(log.when("AG3", false), "5-7");
  EXPECT_EQ(log.end, 33);
}

TEST(ScheduleFsdp1, Vector20) {
  const Log log = run(toy(BackwardPrefetch::pre, true));
  EXPECT_EQ(log.text(),
            "AG[R] AG1 F1 fr1 AG2 F2 fr2 SYNC(fr1) AG3 F3 fr3 SYNC(fr2) AG3 AG2 B3 fr3 RS3 "
            "SYNC(fr3) AG1 B2 fr2 RS2 B1 fr1 RS1 fr[R] RS[R]");
  EXPECT_EQ(log.when("AG3", false), "6-8");
  EXPECT_EQ(log.end, 33);
  EXPECT_EQ(log.queue, "3,2,1,[R]");
}

TEST(ScheduleFsdp1, Vector21) {
  const Log post = run(toy(BackwardPrefetch::post, true));
  EXPECT_EQ(post.backward(),
            "SYNC(fr2) AG3 B3 fr3 SYNC(fr3) AG2 RS3 B2 fr2 SYNC(fr3) AG1 RS2 B1 fr1 RS1 fr[R] "
            "RS[R]");
  EXPECT_EQ(post.when("AG2", true), "18-20");
  EXPECT_EQ(post.when("RS3", true), "20-22");
  EXPECT_EQ(post.when("B2", true).substr(0, 3), "20-");
  EXPECT_EQ(post.end, 37);
  EXPECT_EQ(post.queue, "2,1,[R]");
  const Log none = run(toy(BackwardPrefetch::none, true));
  EXPECT_EQ(none.backward(),
            "SYNC(fr2) AG3 B3 fr3 RS3 SYNC(fr3) AG2 B2 fr2 RS2 SYNC(fr3) AG1 B1 fr1 RS1 fr[R] "
            "RS[R]");
  EXPECT_EQ(none.end, 41);
}

// Iteration 1.
TEST(ScheduleFsdp1, Vector22) {
  EXPECT_EQ(run(toy(BackwardPrefetch::pre, true)).peak_gathered, 4);
  EXPECT_EQ(run(toy(BackwardPrefetch::post, true)).peak_gathered, 3);
  EXPECT_EQ(run(toy(BackwardPrefetch::none, true)).peak_gathered, 3);
  EXPECT_EQ(run(toy(BackwardPrefetch::pre, false)).peak_gathered, 6);
  EXPECT_EQ(run(toy(BackwardPrefetch::pre, false, 6)).peak_gathered, 9);
  const auto before_gather_4 = [](int steps) -> std::string {
    const Log log = run(toy(BackwardPrefetch::pre, true, 6), steps);
    const auto at = std::find_if(log.calls.begin(), log.calls.end(),
                                 [](const Call& c) { return c.what == "AG4"; });
    return at == log.calls.begin() || at == log.calls.end() ? "none" : (at - 1)->what;
  };
  EXPECT_EQ(before_gather_4(1), "SYNC(fr2)");
  EXPECT_EQ(before_gather_4(2), "SYNC(fr1)");
}

TEST(ScheduleFsdp1, Vector23) {
  Scenario s = toy(BackwardPrefetch::pre, false);
  const Log synced = run(s);
  EXPECT_EQ(synced.when("AG1", true), "20-22");
  EXPECT_EQ(synced.when("RS3", true), "18-20");
  // The first of two passes, under no_sync.
  s.training.fsdp1.no_sync = true;
  s.training.grad_accum = 2;
  Log log = run(s);
  const auto second = std::find_if(log.calls.begin() + 1, log.calls.end(),
                                   [](const Call& c) { return c.what == "AG[R]"; });
  log.calls.erase(second, log.calls.end());
  EXPECT_EQ(log.count("RS"), 0);
  EXPECT_EQ(log.when("AG1", true), "18-20");
  double end = 0;
  for (const Call& c : log.calls) end = std::max(end, c.end);
  EXPECT_EQ(end, 30);
}

TEST(ScheduleFsdp1, Vector24) {
  Scenario s = toy();
  s.training.fsdp1.sharding_strategy = ShardingStrategy::shard_grad_op;
  const Log log = run(s);
  EXPECT_EQ(log.count("AG"), 4);
  EXPECT_EQ(log.count("RS"), 4);
  EXPECT_EQ(log.peak_gathered, 4);
  EXPECT_EQ(log.end, 33);
  EXPECT_EQ(log.queue, "3,2,1,[R]");
}

TEST(ScheduleFsdp1, Vector25) {
  const auto end = [](BackwardPrefetch b, int units) { return run(toy(b, true, units)).end; };
  EXPECT_EQ(end(BackwardPrefetch::pre, 6), 60);
  EXPECT_EQ(end(BackwardPrefetch::post, 6), 70);
  EXPECT_EQ(end(BackwardPrefetch::none, 6), 80);
  EXPECT_EQ(end(BackwardPrefetch::pre, 12), 114);
  EXPECT_EQ(end(BackwardPrefetch::post, 12), 136);
  EXPECT_EQ(end(BackwardPrefetch::none, 12), 158);
}

TEST(ScheduleFsdp1, Vector26) {
  Scenario s = toy(BackwardPrefetch::pre, false);
  s.training.fsdp1.sharding_strategy = ShardingStrategy::hybrid_shard;
  s.training.mesh = {2, 4};
  Units u;
  u.reduce = 4;
  const Log log = run(s, 1, u);
  EXPECT_EQ(log.when("AR3", true), "20-24");
  EXPECT_EQ(log.when("AR2", true), "26-30");
  EXPECT_EQ(log.when("AR1", true), "32-36");
  EXPECT_EQ(log.when("AR[R]", true), "36-40");
  EXPECT_EQ(log.end, 40);
}

TEST(ScheduleFsdp1, Vector27) {
  const auto end = [](BackwardPrefetch b) { return run(toy(b, true), 1, {8, 8, 0, 0}).end; };
  EXPECT_EQ(end(BackwardPrefetch::pre), 72);
  EXPECT_EQ(end(BackwardPrefetch::post), 78);
  EXPECT_EQ(end(BackwardPrefetch::none), 90);
}

TEST(ScheduleFsdp1, Vector28) {
  Scenario s = toy();
  s.training.wrap.policy = WrapPolicy::root_only;
  const test::CollectiveCounts c = test::collectives(test::play(s), "step0");
  EXPECT_EQ(c, (test::CollectiveCounts{1, 1, 0}));
}

TEST(ScheduleFsdp1, Vector29) {
  Scenario s = toy(BackwardPrefetch::pre, false);
  s.training.fsdp1.forward_prefetch = true;
  EXPECT_EQ(run(s).text(), run(toy(BackwardPrefetch::pre, false)).text());
  const std::string order =
      "AG[R] AG1 AG2 F1 fr1 AG3 F2 fr2 F3 fr3 AG3 AG2 B3 AG1 B2 fr3 RS3 B1 fr2 RS2 fr1 RS1 fr[R] "
      "RS[R]";
  const Log log = run(s, 2);
  EXPECT_EQ(log.text(), order);
  EXPECT_EQ(log.end, 33);
  // PyTorch 2.7 waits for each gradient as soon as it is made.
  s.training.pytorch = "2.7";
  const Log old = run(s, 2);
  EXPECT_EQ(old.text(), order);
  EXPECT_EQ(old.when("AG1", true), "18-20");
  EXPECT_EQ(old.when("RS3", true), "24-26");
  EXPECT_EQ(old.when("RS2", true), "30-32");
  EXPECT_EQ(old.when("RS1", true), "32-34");
  EXPECT_EQ(old.when("RS[R]", true), "34-35");
  EXPECT_EQ(old.end, 35);
  // With the limiter.
  s.training.pytorch = "2.15";
  s.training.fsdp1.limit_all_gathers = true;
  const Log limited = run(s, 2);
  EXPECT_EQ(limited.forward(),
            "SYNC(fr3) AG[R] SYNC(fr2) AG1 SYNC(fr1) AG2 F1 fr1 SYNC(fr[R]) AG3 F2 fr2 F3 fr3");
  EXPECT_EQ(limited.backward(),
            "SYNC(fr1) SYNC(fr2) AG3 AG2 B3 AG1 B2 fr3 RS3 B1 fr2 RS2 fr1 RS1 fr[R] RS[R]");
  EXPECT_EQ(limited.queue, "3,3,2,1,[R]");
}

// 7e9 parameters in fp32 on 8 ranks, as 7 units of (31250, 32000): saving the full or the sharded state
// gathers 7/8 of 28e9 bytes, the local one nothing.
TEST(ScheduleFsdp1, Vector35) {
  using StateDict = Fsdp1Options::StateDict;
  Scenario s = test::stack_scenario(7, {{31250, 32000}});
  s.model.naming = Naming::recorder_fsdp1;
  s.training.strategy = Strategy::fsdp1;
  const auto gathered = [&](StateDict kind) {
    s.training.fsdp1.state_dict = kind;
    const Model model = build_model(s.model);
    const Plan plan = build_plan(model, s.training);
    Schedule schedule;
    TrainingProgram program(model, plan, s, schedule);
    program.initialize();
    program.step();
    const size_t before = schedule.segments.size();
    program.save();
    Bytes bytes = 0;
    for (size_t i = before; i < schedule.segments.size(); ++i)
      for (uint32_t c = schedule.segments[i].begin; c < schedule.segments[i].end; ++c)
        if (const Instr& in = schedule.code[c]; in.kind == Kind::Launch)
          if (const Work& w = schedule.works[in.a]; w.kind == WorkKind::AllGather)
            bytes += w.bytes / 8 * 7;
    return bytes;
  };
  EXPECT_EQ(gathered(StateDict::full), 24'500'000'000);
  EXPECT_EQ(gathered(StateDict::sharded), 24'500'000'000);
  EXPECT_EQ(gathered(StateDict::local), 0);
}

}  // namespace
}  // namespace shardsim
