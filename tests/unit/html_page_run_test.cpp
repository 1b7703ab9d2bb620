// The page of a run and its parts; that it draws is tests/html/check.py's.
#include "sim/report/html/page_run.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <nlohmann/json.hpp>

#include "sim/cluster/catalogue.h"
#include "sim/report/html/group_times.h"
#include "sim/report/html/memory_curve.h"
#include "sim/report/html/pack.h"
#include "sim/report/html/page.h"
#include "tests/unit/hand_schedule.h"

namespace shardsim {
namespace {

using nlohmann::json;
using test::HandSchedule;

constexpr const char* kHostile = "</script><img src=x onerror=alert(1)>&\"'";

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

// What stands in the element of that id.
std::string element(const std::string& page, const std::string& id) {
  const size_t from = page.find('>', page.find("id=\"" + id + "\"")) + 1;
  return page.substr(from, page.find("</script>", from) - from);
}

std::string unpacked(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  for (size_t i = 0; i + 3 < text.size(); i += 4) {
    size_t n = 0, pad = 0;
    for (size_t k = 0; k < 4; ++k) {
      pad += text[i + k] == '=' ? 1 : 0;
      n = n << 6 | (text[i + k] == '=' ? 0 : digits.find(text[i + k]));
    }
    for (size_t k = 0; k < 3 - pad; ++k) bytes += static_cast<char>(n >> (16 - 8 * k) & 255);
  }
  std::string out(64 << 20, '\0');
  uLongf size = out.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(out.data()), &size,
                       reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()),
            Z_OK);
  out.resize(size);
  return out;
}

// The header's numbers: 300 is 0xac 0x02; -2 is 3.
TEST(Packer, NumbersAsBytes) {
  Packer p;
  p.add(300);
  p.add_signed(-2);
  p.add_signed(1);
  p.add_signed(INT64_MIN);
  EXPECT_EQ(p.bytes().substr(0, 4), "\xac\x02\x03\x02");
  EXPECT_EQ(p.bytes().substr(4), "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  EXPECT_EQ(unpacked(p.text()), p.bytes());
}

TEST(Page, NamesAreNeverMarkup) {
  const std::string page = html_page("run", kHostile, json({{"a", kHostile}}).dump(), "");
  EXPECT_NE(page.find("<title>&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&amp;\"'</title>"),
            std::string::npos);
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(count(page, "<script"), count(page, "</script>"));
  EXPECT_EQ(json::parse(element(page, "data"))["a"], kHostile);
  EXPECT_EQ(page.rfind("<!doctype html>", 0), 0U);
  // Nothing is fetched: no address of another place is in a page at all.
  EXPECT_EQ(page.find("http:"), std::string::npos);
  EXPECT_EQ(page.find("https:"), std::string::npos);
}

// A gather of group 0 [0, 30) us; its kernel of the forward [30, 50), of the backward [70, 110); a
// reduction that nothing hides [110, 135).
HandSchedule one_step() {
  HandSchedule h(3);
  const uint32_t comm = h.comm(4, "shard"), gathered = h.event(), done = h.event();
  h.mark("after_init", -1, true);
  h.collective(1, WorkKind::AllGather, 30, comm, 0).bytes = 4096;
  h.record(1, gathered);
  h.wait(0, gathered);
  h.kernel(0, 20, "norm").group = {0};
  h.mark("step0.0.after_forward", 0, false);
  h.kernel(0, 20, "loss");
  h.kernel(0, 40, "norm_backward").group = {0};
  h.record(0, done);
  h.wait(2, done);
  h.collective(2, WorkKind::ReduceScatter, 25, comm, 0).bytes = 8192;
  h.mark("step0.0.after_backward", 0, false);
  h.mark("step0.after_optimizer", 0, true);
  h.done();
  return h;
}

TEST(GroupTimes, EachGroupsOwnLaunches) {
  HandSchedule h = one_step();
  const std::vector<GroupTimes> t = group_times(h.schedule, h.play(), 0, 1);
  ASSERT_EQ(t.size(), 2U);
  EXPECT_EQ(t[0].all_gather, Time::us(30));
  EXPECT_EQ(t[0].compute[0], Time::us(20));
  EXPECT_EQ(t[0].compute[1], Time::us(40));
  EXPECT_EQ(t[0].reduce, Time::us(25));
  EXPECT_EQ(t[0].exposed, Time::us(55));
  EXPECT_EQ(t[0].gathered, 4096);
  EXPECT_EQ(t[0].reduced, 8192);
  EXPECT_EQ(t[1].compute[1], Time::us(20));  // the loss, no group's
}

// The header's example: two points, at 5 us on the host's clock and 40 us on the device's.
TEST(MemoryCurve, HighPointsAndTwoClocks) {
  HandSchedule h(1);
  const uint32_t a = h.buffer(1000), w = h.buffer(512);
  h.schedule.buffers[w].category = Category::workspace;
  h.kernel(0, 40);
  h.alloc(a);
  h.alloc(w);
  h.free(w);
  h.kernel(0, 10);
  h.free(a);
  const Trace trace = h.play(Time::us(5));
  const std::vector<Time> launch(2, Time::us(5));
  const MemoryCurve c = memory_curve(h.schedule, trace, launch, {});
  EXPECT_EQ(c.host, (std::vector<Time>{Time::us(5), Time::us(5), Time::us(10)}));
  EXPECT_EQ(c.device, (std::vector<Time>{Time::us(40), Time::us(40), Time::us(50)}));
  EXPECT_EQ(c.first, (std::vector<uint32_t>{0, 2, 3, 4}));
  const std::vector<Bytes> bytes{1024, 512, -512, -1024};
  for (size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(c.changes[i].bytes, bytes[i]) << i;
  EXPECT_TRUE(c.reserved.empty());
  const std::vector<Bytes> reserved{2 << 20, 4 << 20, 4 << 20, 4 << 20};
  EXPECT_EQ(memory_curve(h.schedule, trace, launch, reserved).reserved,
            (std::vector<Bytes>{4 << 20, 4 << 20, 4 << 20}));
}

StepReport report_of(HandSchedule& h, const Trace& trace) {
  RunFacts run;
  run.name = kHostile;
  run.cluster = find_system("dgx-h100").value();
  run.world = 8;
  run.tokens_per_step = 4096;
  ModelFacts model;
  model.name = kHostile;
  GroupRow group;
  group.name = kHostile;
  return make_step_report(run, model, {group}, h.schedule, trace);
}

TEST(RunPage, HostileNamesAreHarmlessAndTheSameRunIsTheSamePage) {
  HandSchedule h = one_step();
  h.schedule.streams[1] = h.schedule.comms[0].name = kHostile;
  const Trace trace = h.play();
  const StepReport report = report_of(h, trace);
  const std::string page = run_page(report, h.schedule, trace, {});
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(count(page, "<script"), count(page, "</script>"));
  const json data = json::parse(element(page, "data"));
  EXPECT_EQ(data["report"]["name"], kHostile);
  EXPECT_EQ(data["groups"][0], kHostile);
  EXPECT_EQ(data["streams"][1], kHostile);
  EXPECT_EQ(data["steps"], json::parse("[[0, 135000]]"));
  EXPECT_EQ(data["phases"], json::parse(R"([["forward", 0, 50000], ["backward", 50000, 135000]])"));
  EXPECT_EQ(run_page(report, h.schedule, trace, {}), page);
}

// Durations and sizes that repeat nowhere: the worst that packing can meet.
TEST(RunPage, TwoHundredThousandSpansAreBelowFiveMegabytes) {
  HandSchedule h(4);
  uint32_t state = 1;
  const auto random = [&state](uint32_t n) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % n;
  };
  const uint32_t comm = h.comm(8, "shard");
  h.mark("after_init", -1, true);
  constexpr int kLaunches = 100'000;
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < kLaunches; ++i) {
      const uint32_t b = h.buffer(static_cast<Bytes>(1 + random(1 << 16)) * 512);
      h.alloc(b);
      if (i % 8 == 7)
        h.collective(2, WorkKind::AllGather, 1 + random(500), comm, 0).bytes = 1 << 20;
      else
        h.kernel(0, 1 + random(500), i % 2 == 0 ? "linear" : "norm").bytes = random(1000) * 512;
      h.free(b);
    }
    const std::string name = "step" + std::to_string(step) + ".";
    h.mark(name + "after_backward", step, false);
    h.mark(name + "after_optimizer", step, true);
  }
  const Trace trace = h.play(Time::us(3));
  const StepReport report = report_of(h, trace);
  const std::string page = run_page(report, h.schedule, trace, {});
  EXPECT_LT(page.size(), 5'000'000U);
  json data = json::parse(element(page, "data"));
  EXPECT_EQ(data["left_out"]["steps"], 1);
  EXPECT_EQ(data["left_out"]["launches"], kLaunches);
  EXPECT_EQ(data["left_out"]["short"], 0);
  // A step that is too long by itself loses its shortest launches.
  RunPageOptions few;
  few.most_spans = 1'000;
  data = json::parse(element(run_page(report, h.schedule, trace, few), "data"));
  EXPECT_EQ(data["left_out"]["steps"], 2);
  EXPECT_EQ(data["left_out"]["short"], kLaunches - 1'000);
  EXPECT_GT(data["left_out"]["longest_short_ns"], 400'000);
  // A point for each launch and more, of which 2,000 may stay.
  EXPECT_GE(data["left_out"]["memory_points"], kLaunches - 2'000);
}

}  // namespace
}  // namespace shardsim
