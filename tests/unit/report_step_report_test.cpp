#include "sim/report/step_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/cluster/catalogue.h"
#include "tests/unit/hand_schedule.h"

namespace shardsim {
namespace {

using nlohmann::json;
using test::HandSchedule;

// Two steps of: kernel 10 us; gather of 1 MiB, 30 us, after it; kernel 60 us after that. A step is
// 100 us, 30 of them exposed. One buffer of 1000 bytes (a block of 1024) is live in each step.
HandSchedule two_steps() {
  HandSchedule h(2);
  const uint32_t comm = h.comm(8, "shard");
  const uint32_t e = h.event(), f = h.event();
  const uint32_t b = h.buffer(1000);
  for (int step = 0; step < 2; ++step) {
    const std::string name = "step" + std::to_string(step) + ".";
    h.mark(name + "begin", step, true);
    h.kernel(0, 10);
    h.record(0, e);
    h.wait(1, e);
    h.collective(1, WorkKind::AllGather, 30, comm, 0).bytes = 1 << 20;
    h.record(1, f);
    h.wait(0, f);
    h.alloc(b);
    h.kernel(0, 60);
    h.mark(name + "0.after_forward", step, false);
    h.free(b);
    h.mark(name + "after_optimizer", step, false);
  }
  h.done();
  return h;
}

StepReport report(HandSchedule& h, Bytes memory_bytes = 80 * kGiB) {
  RunFacts run;
  run.name = "toy";
  run.cluster = find_system("dgx-h100").value();
  run.cluster.gpu.memory_bytes = memory_bytes;
  run.world = 8;
  run.tokens_per_step = 4096;
  run.peak_tflops = 989;
  run.compute_dtype = "bf16";
  ModelFacts model;
  model.name = "toy-model";
  model.params = 1'000'000;
  model.flops_per_token = 12e6;
  model.hardware_flops_per_token = 16e6;
  model.mfu_definition = "6 N";
  GroupRow root, layer;
  layer.name = "layers.0";
  layer.numel = 10;
  layer.padded_numel = 16;
  layer.shard_bytes = 8;
  layer.all_gather_bytes = 32;
  layer.reduce_scatter_bytes = 64;
  layer.reshard = "true";
  root.reshard = "false";
  return make_step_report(run, model, {layer, root}, h.schedule, h.play());
}

TEST(StepReport, Figures) {
  HandSchedule h = two_steps();
  const StepReport r = report(h);
  EXPECT_DOUBLE_EQ(r.step_time_s(), 100e-6);
  // 4096 / 100 us = 40.96e6 tokens/s; x 12e6 / 989e12 = 0.49699...
  EXPECT_DOUBLE_EQ(r.tokens_per_s_per_gpu(), 40.96e6);
  EXPECT_NEAR(r.mfu(), 0.4969868, 1e-6);
  EXPECT_NEAR(r.hfu() / r.mfu(), 4.0 / 3, 1e-12);
  ASSERT_EQ(r.collectives.size(), 1u);
  EXPECT_EQ(r.collectives[0].count, 1);
  EXPECT_EQ(r.collectives[0].bytes_total, 1 << 20);
  EXPECT_EQ(r.collectives[0].exposed, Time::us(30));
  ASSERT_EQ(r.exposed.size(), 1u);
  EXPECT_EQ(r.exposed[0].waiting_on, "all_gather layers.0");
  EXPECT_EQ(r.memory.peak_allocated, 1024);
  EXPECT_FALSE(r.memory.oom());
  EXPECT_EQ(r.memory.headroom(), 80 * kGiB - 500 * kMiB - 1024);
}

TEST(StepReport, Json) {
  HandSchedule h = two_steps();
  const std::string text = report_json(report(h));
  const json j = json::parse(text);
  EXPECT_EQ(j["schema_version"], 1);
  EXPECT_EQ(j["step_time_s"].dump(), "0.0001");
  EXPECT_EQ(j["tokens_per_s_per_gpu"], 40.96e6);
  EXPECT_EQ(j["mfu"], 0.496987);
  EXPECT_EQ(j["mfu_definition"], "6 N");
  EXPECT_EQ(j["hfu"], 0.662649);
  EXPECT_EQ(j["compute_busy_s"].dump(), "7e-05");
  EXPECT_EQ(j["comm_busy_s"].dump(), "3e-05");
  EXPECT_EQ(j["exposed_comm_s"].dump(), "3e-05");
  EXPECT_EQ(j["overlap_fraction"], 0.0);
  EXPECT_EQ(j["host_bound_fraction"], 0.0);
  EXPECT_EQ(j["collectives"].dump(),
            R"([{"algorithm":null,"bytes_total":1048576,"channels":null,"communicator":"shard",)"
            R"("count":1,"ctas":null,"exposed_s":3e-05,"group":"layers.0","kind":"all_gather",)"
            R"("protocol":null,"time_s":3e-05}])");
  EXPECT_TRUE(j["link_utilisation"].is_null());
  EXPECT_EQ(j["exposed"].dump(), R"([{"cause":"event","duration_s":3e-05,"start_s":1e-05,)"
                                 R"("waiting_on":"all_gather layers.0"}])");
  const json& m = j["memory"];
  EXPECT_EQ(m["peak_allocated_bytes"], 1024);
  EXPECT_TRUE(m["peak_active_bytes"].is_null());
  EXPECT_TRUE(m["peak_reserved_bytes"].is_null());
  EXPECT_TRUE(m["peak_device_bytes"].is_null());
  EXPECT_EQ(m["by_category"]["activations"], 1024);
  EXPECT_EQ(m["by_category"].size(), static_cast<size_t>(kCategories));
  EXPECT_EQ(m["by_phase"]["0.after_forward"], 1024);
  EXPECT_EQ(m["oom"], false);
  EXPECT_TRUE(m["oom_missing_bytes"].is_null());
  EXPECT_EQ(m["marks"].size(), 6u);
  EXPECT_EQ(j["groups"][0]["padded_numel"], 16);
  EXPECT_EQ(j["groups"][1]["name"], "(root)");
  EXPECT_EQ(j["model"]["flops_per_token"], 12'000'000);
  EXPECT_EQ(j["steps"].size(), 2u);
  EXPECT_EQ(text, report_json(report(h)));  // the same bytes again
}

TEST(StepReport, Table) {
  HandSchedule h = two_steps();
  EXPECT_EQ(report_table(report(h)),
            R"(toy: toy-model, fsdp2 on 8 x h100-sxm5-80gb (dgx-h100), 4,096 tokens a GPU and step

  step time      100.0 us   (first step 100.0 us)
  tokens/s/GPU   40,960,000
  MFU            49.7 % of 989 bf16 TFLOPS, FLOPs = 6 N
  HFU            66.3 %, with recomputation
  exposed comm   30.0 % of the step (30.0 us), 0.0 % of communication is hidden
                 most of it (30.0 us) waits on all_gather layers.0, cause event
  peak memory    1.00 KiB of 79.51 GiB: fits, 79.51 GiB left

memory at the peak (before the mark step1.after_optimizer)
  activations                 1.00 KiB  100.0 %

exposed communication
          from         for  cause         waiting on
       10.0 us     30.0 us  event         all_gather layers.0

collectives of a step
  kind            communicator     count         bytes         time      exposed
  all_gather      shard                1      1.00 MiB      30.0 us      30.0 us
)");
}

// 500 MiB of context and 512 bytes: the peak of 1024 lacks 512.
TEST(StepReport, OutOfMemoryNamesTheTermAndTheBytes) {
  HandSchedule h = two_steps();
  const StepReport r = report(h, 500 * kMiB + 512);
  EXPECT_TRUE(r.memory.oom());
  const json m = json::parse(report_json(r))["memory"];
  EXPECT_EQ(m["oom"], true);
  EXPECT_EQ(m["oom_missing_bytes"], 512);
  EXPECT_EQ(m["oom_largest_category"], "activations");
  EXPECT_EQ(m["headroom_bytes"], -512);
  EXPECT_NE(report_table(r).find("OUT OF MEMORY, 512 B missing of 512 B; the largest part is "
                                 "activations, 1.00 KiB"),
            std::string::npos);
}

TEST(StepReport, GroupsCsv) {
  GroupRow g;
  g.name = "a,\"b\"";
  g.numel = 7;
  g.reshard = "2";
  EXPECT_EQ(groups_csv({g, GroupRow{}}),
            "name,numel,padded_numel,shard_bytes,all_gather_bytes,reduce_scatter_bytes,reshard\n"
            "\"a,\"\"b\"\"\",7,0,0,0,0,2\n"
            "(root),0,0,0,0,0,\n");
}

}  // namespace
}  // namespace shardsim
