// When a step need not be played: by hand, and against runs that play it.
#include "sim/study/steady.h"

#include <gtest/gtest.h>

#include "sim/cluster/catalogue.h"
#include "sim/config/scenario.h"
#include "sim/study/simulate.h"
#include "tests/unit/hand_schedule.h"
#include "tests/unit/play_scenario.h"

namespace shardsim {
namespace {

using test::HandSchedule;

// Steps laid out one after another, each by `step`; what Steady says behind each.
struct Said {
  bool ended_as_it_began, device_decides;
};

template <class Step>
std::vector<Said> said(int steps, Time host_call, Step&& step) {
  HandSchedule h;
  Machine machine;
  Trace t;
  Steady steady(h.schedule);
  std::vector<Said> out;
  for (int i = 0; i < steps; ++i) {
    Segment s;
    s.begin = static_cast<uint32_t>(h.schedule.code.size());
    step(h, i);
    s.end = static_cast<uint32_t>(h.schedule.code.size());
    h.schedule.segments.push_back(s);
    CostTable costs;
    costs.work = h.cost;
    costs.launch.assign(h.cost.size(), host_call);
    costs.host = HostCosts::every(host_call);
    machine.play(h.schedule, costs, t);
    steady.stepped(machine, costs, t);
    out.push_back({steady.ended_as_it_began(), steady.device_decides()});
  }
  return out;
}

// Stream 1 runs 4 when stream 0 is done with the step before, then stream 0 runs its kernel.
void tied_step(HandSchedule& h, int64_t kernel) {
  const uint32_t begun = h.event(), done = h.event();
  h.record(0, begun);
  h.wait(1, begun);
  h.kernel(1, 4);
  h.record(1, done);
  h.wait(0, done);
  h.kernel(0, kernel);
}

// The first step's kernel takes 30, the others' 10: after the second step stream 1 lags by 10 in place of
// 30, which does not matter, for it waits for stream 0. Only after the third are states and lengths
// (34, 14, 14) alike. A free host is ahead from the second step's first launch on, by 34.
TEST(StudySteady, TheDeviceDecidesAStepEarlier) {
  const auto s = said(3, {}, [](HandSchedule& h, int i) { tied_step(h, i == 0 ? 30 : 10); });
  EXPECT_FALSE(s[0].device_decides);
  EXPECT_TRUE(s[1].device_decides);
  EXPECT_FALSE(s[1].ended_as_it_began);
  EXPECT_TRUE(s[2].ended_as_it_began);
}

// Of calls of 10 us a step has six; the first one's kernels are over at 80, the second is issued from 60 to
// 120 and the third to 180, each kernel when it is issued: 80, 40, 60, 60.
TEST(StudySteady, TheHostDecides) {
  const auto s =
      said(4, Time::us(10), [](HandSchedule& h, int i) { tied_step(h, i == 0 ? 30 : 10); });
  for (const Said& step : s) EXPECT_FALSE(step.device_decides);
  EXPECT_FALSE(s[2].ended_as_it_began);
  EXPECT_TRUE(s[3].ended_as_it_began);
}

// Calls of 1 us, and the first step's kernels are over at 36: the second step's on stream 1 is issued at 9
// and starts at 36, the one on stream 0 at 12 and 40. The host is ahead by 27: waits that are not made this
// time, but might be, could make up for that if they were as many.
TEST(StudySteady, WhatTheHostCouldLose) {
  for (const int waits : {26, 27}) {
    const auto s = said(2, Time::us(1), [&](HandSchedule& h, int i) {
      tied_step(h, i == 0 ? 30 : 10);
      const uint32_t past = h.event();
      h.record(2, past);
      for (int w = 0; w < waits; ++w) h.wait_unless_done(2, past);
    });
    EXPECT_EQ(s[1].device_decides, waits == 26) << waits;
  }
}

// Two buffers take turns, 512 bytes and 1,024, so that a step ends as the one before it began: known
// after the third of the same length. Where the lengths take turns too, no step is all others'.
TEST(StudySteady, StepsThatTakeTurns) {
  for (const bool alike : {true, false}) {
    uint32_t small = 0, large = 0;
    const auto s = said(5, {}, [&](HandSchedule& h, int i) {
      if (i == 0) {
        small = h.buffer(512);
        large = h.buffer(1024);
        h.alloc(small);
      }
      h.alloc(i % 2 == 0 ? large : small);
      h.kernel(0, alike || i % 2 == 0 ? 10 : 20);
      h.free(i % 2 == 0 ? small : large);
      h.device_sync();
    });
    for (size_t i = 0; i < s.size(); ++i)
      EXPECT_EQ(s[i].ended_as_it_began, alike && i >= 2) << alike << i;
  }
}

// Stream 1 does not wait, and starts before the step before is over: how far it lags does matter.
TEST(StudySteady, AStreamThatRunsAhead) {
  const auto s = said(3, {}, [](HandSchedule& h, int i) {
    h.kernel(1, 4);
    h.kernel(0, i == 0 ? 30 : 10);
  });
  for (const Said& step : s) EXPECT_FALSE(step.device_decides);
}

// Two steps; the other is laid out by `other`.
template <class Other>
bool second_repeats(Other&& other) {
  HandSchedule h;
  const uint32_t early = h.event();
  h.record(0, early);
  const auto end = [&h](uint32_t begin) {
    Segment s;
    s.begin = begin;
    s.end = static_cast<uint32_t>(h.schedule.code.size());
    h.schedule.segments.push_back(s);
    return end_of(h.schedule);
  };
  const StepEnd a = end(0);
  const uint32_t buffer = h.buffer(512), event = h.event();
  h.alloc(buffer);
  h.kernel(1, 4);
  h.record(1, event);
  h.wait(0, event);
  h.free(buffer);
  h.mark("step0", 0, true);
  const StepEnd b = end(static_cast<uint32_t>(a.code));
  const auto work = static_cast<uint32_t>(b.works) - 1;
  other(h, work, buffer, early);
  end(static_cast<uint32_t>(b.code));
  const bool same = repeats(h.schedule, a, b);
  const size_t works = h.schedule.works.size();
  cut(h.schedule, b);
  EXPECT_EQ(h.schedule.code.size(), b.code);
  EXPECT_EQ(h.schedule.segments.size(), b.segments);
  EXPECT_EQ(h.schedule.marks.size(), b.marks);
  EXPECT_EQ(h.schedule.works.size(), works);
  return same;
}

// Events may be others, if they are recorded at the same place; nothing else may.
TEST(StudySteady, WhatRepeats) {
  const auto step = [](HandSchedule& h, uint32_t work, uint32_t buffer, StreamId stream,
                       uint32_t recorded, uint32_t waited, bool mark) {
    h.alloc(buffer);
    h.add(Kind::Launch, stream, work);
    h.record(1, recorded);
    h.wait(0, waited);
    h.free(buffer);
    if (mark) h.mark("step1", 1, true);
  };
  using H = HandSchedule;
  EXPECT_TRUE(second_repeats([&](H& h, uint32_t w, uint32_t b, uint32_t) {
    const uint32_t e = h.event();
    step(h, w, b, 1, e, e, true);
  }));
  EXPECT_FALSE(second_repeats([&](H& h, uint32_t w, uint32_t b, uint32_t early) {
    step(h, w, b, 1, h.event(), early, true);  // for another call's
  }));
  EXPECT_FALSE(second_repeats([&](H& h, uint32_t w, uint32_t b, uint32_t) {
    const uint32_t e = h.event();
    step(h, w, b, 2, e, e, true);  // on another stream
  }));
  EXPECT_FALSE(second_repeats([&](H& h, uint32_t w, uint32_t b, uint32_t) {
    const uint32_t e = h.event();
    step(h, w, b, 1, e, e, true);
    h.add(Kind::Launch, 1, w);  // one more
  }));
  EXPECT_FALSE(second_repeats([&](H& h, uint32_t w, uint32_t, uint32_t) {
    const uint32_t e = h.event();
    step(h, w, h.buffer(512), 1, e, e, true);  // of another buffer
  }));
  EXPECT_FALSE(second_repeats([&](H& h, uint32_t w, uint32_t b, uint32_t) {
    const uint32_t e = h.event();
    step(h, w, b, 1, e, e, false);  // without its mark
  }));
  EXPECT_FALSE(second_repeats([](H& h, uint32_t, uint32_t b, uint32_t) {
    const uint32_t e = h.event();  // a work of its own
    h.alloc(b);
    h.kernel(1, 4);
    h.record(1, e);
    h.wait(0, e);
    h.free(b);
    h.mark("step1", 1, true);
  }));
}

// Starts and ends of a step's launches and its end's, from the end of the step before.
std::vector<Time> step_of(const Simulation& s, int step) {
  uint32_t first = 0, end = 0;
  for (const MarkRow& row : s.trace.marks) {
    const MarkInfo& mark = s.schedule.marks[row.mark];
    if (mark.begins_step && mark.step == step - 1) first = row.launches;
    if (mark.begins_step && mark.step == step) end = row.launches;
  }
  Time begin;
  for (uint32_t i = 0; i < first; ++i) begin = std::max(begin, s.trace.end[i]);
  std::vector<Time> out;
  for (uint32_t i = first; i < end; ++i) {
    out.push_back(s.trace.start[i] - begin);
    out.push_back(s.trace.end[i] - begin);
  }
  return out;
}

Scenario shipped(const std::string& name) {
  return load_scenario(SHARDSIM_SOURCE_DIR "/scenarios/" + name + ".yaml");
}

// The step that was not played is the one that another run plays, and so are those behind it; memory
// too. All these are known to be steady after the second step.
TEST(StudySteady, WhatIsNotPlayed) {
  std::vector<Scenario> all;
  for (const char* name :
       {"llama3-8b-fsdp2-h100x8", "llama3-8b-hsdp-h100x64", "llama3-8b-grad-accum-h100x8",
        "llama3-8b-prefetch-h100x16", "llama3-8b-reshard-8-h100x32", "llama3-8b-compiled-h100x8",
        "small/mixtral-2-layers-h100x8"})
    all.push_back(shipped(name));
  all.push_back(shipped("llama3-8b-fsdp2-h100x8"));
  all.back().training.wrap.policy = WrapPolicy::root_only;
  all.push_back(shipped("llama3-8b-hsdp-h100x64"));
  all.back().training.grad_accum = 2;
  all.push_back(shipped("llama3-8b-fsdp2-h100x8"));
  all.back().training.clip_grad_norm = 0;
  for (Scenario& s : all) {
    const Simulation early = simulate(s);
    EXPECT_TRUE(early.steady) << s.name;
    EXPECT_EQ(early.steps, 2) << s.name;
    s.options.max_steps = 5;
    const Simulation whole = simulate(s, Until::max_steps);
    ASSERT_FALSE(step_of(early, 1).empty());
    for (int step = 2; step < 5; ++step)
      EXPECT_TRUE(step_of(early, 1) == step_of(whole, step)) << s.name << ", step " << step;
    EXPECT_EQ(early.trace.peak, whole.trace.peak) << s.name;
    EXPECT_EQ(early.trace.marks.back().allocated, whole.trace.marks.back().allocated) << s.name;
    EXPECT_EQ(early.trace.marks.back().allocated_peak, whole.trace.marks.back().allocated_peak);
    EXPECT_EQ(early.unsharded, whole.unsharded) << s.name;
  }
}

}  // namespace
}  // namespace shardsim
