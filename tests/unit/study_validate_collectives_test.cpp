#include "sim/study/validate_collectives.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/base/error.h"

namespace shardsim {
namespace {

constexpr const char* kSources = R"(
systems:
  - {name: "academic H100 cluster*", preset: dgx-h100}
  - {name: "NVL72 x2", preset: gb200-nvl72, contiguous: true}
left_out:
  - {note: "*forced*", reason: an algorithm was forced}
fitted:
  - {system: "academic*", source: "*N10_G8.log"}
)";

// Rows of github xxrjun/nccl-tests-cluster, and of others.
constexpr const char* kTable =
    "gpu,system,nodes,gpus,link,collective,bytes,time_us,nccl,source,note\n"
    "H100,academic H100 cluster (10 "
    "nodes),10,80,IB,all_gather,1073740800,4001,2.29.2,x/N10_G8.log,\n"
    "H100,academic H100 cluster (10 "
    "nodes),10,20,IB,reduce_scatter,1073741760,10550,2.29.2,x/N10_G2.log,\n"
    "H100,dgx-h100,1,8,NVLink,all_reduce,1073741824,4001,,,\n"
    "GB200,NVL72 x2,36,144,NVLink,all_reduce,17179869184,42070,2.26.2,,\n"
    "H100,dgx-h100,4,32,IB,all_reduce,1073741824,4001,,,forced Tree\n"
    "MI300X,8xMI300X,1,8,xGMI,all_reduce,4294967296,24020,RCCL,,\n"
    "H100,dgx-h100,1,8,NVLink,alltoall,1073741824,4001,,,\n"
    "H100,dgx-h100,3,8,IB,all_gather,1073741824,4001,,,\n";

CollectiveValidation validated() {
  return validate_collectives(parse_csv(kTable, "rows.csv"),
                              parse_collective_sources(kSources, "sources.yaml"));
}

TEST(ValidateCollectives, RowsAndReasons) {
  const CollectiveValidation v = validated();
  ASSERT_EQ(v.rows.size(), 8u);
  EXPECT_TRUE(v.rows[0].fitted);
  EXPECT_FALSE(v.rows[1].fitted);
  for (int i : {0, 1, 2}) EXPECT_LT(std::abs(v.rows[i].error_pct()), 5) << i;
  EXPECT_EQ(v.rows[0].choice, "Ring/Simple");
  EXPECT_EQ(v.rows[2].choice, "NVLS/Simple");
  EXPECT_EQ(v.rows[1].group(),
            "academic H100 cluster (10 nodes), reduce_scatter, 20 GPUs on 10 nodes");
  // A rack is one node of 72, whatever its trays are called.
  EXPECT_EQ(v.rows[3].nodes, 2);
  EXPECT_EQ(v.rows[4].left_out, "an algorithm was forced");
  EXPECT_EQ(
      v.rows[5].left_out,
      "no system of the catalogue stands for 8xMI300X: write a name of `shardsim list clusters`");
  EXPECT_EQ(v.rows[6].left_out, "alltoall is not priced");
  EXPECT_EQ(v.rows[7].left_out, "8 GPUs on 3 nodes of 8 are not laid out evenly");
  ASSERT_EQ(v.groups.size(), 4u);
  EXPECT_EQ(v.groups[0].score.count, 1u);
}

TEST(ValidateCollectives, Classes) {
  const CollectiveValidation v = validated();
  const auto count = [&](const std::string& name) {
    for (const NamedScore& s : v.classes)
      if (s.name == name) return static_cast<int>(s.score.count);
    return 0;
  };
  EXPECT_EQ(count("fitted: gather and scatter between nodes, 32 MiB and more"), 1);
  EXPECT_EQ(count("kept out: gather and scatter between nodes, all sizes"), 1);
  EXPECT_EQ(count("kept out: all_reduce in a node, 32 MiB and more"), 1);
  EXPECT_EQ(count("kept out: all_reduce between nodes, 32 MiB and more"), 1);
}

TEST(ValidateCollectives, Written) {
  const CollectiveValidation v = validated();
  const std::string table = collective_validation_table(v, true);
  EXPECT_EQ(table.substr(0, table.find('\n')), "8 rows of collectives: 4 predicted, 4 left out");
  EXPECT_NE(table.find("no system of the catalogue stands for 8xMI300X: write a name of `shardsim "
                       "list clusters`"),
            std::string::npos);
  const auto j = nlohmann::json::parse(collective_validation_json(v));
  EXPECT_EQ(j["rows"].size(), 8u);
  EXPECT_EQ(j["totals"]["count"], 4);
  EXPECT_EQ(j["rows"][4]["left_out"], "an algorithm was forced");
  EXPECT_TRUE(j["rows"][4]["predicted"].is_null());
  EXPECT_EQ(collective_validation_csv(v).substr(0, 10), "line,group");
}

// The file that ships names systems that there are.
TEST(ValidateCollectives, Shipped) {
  const CollectiveSources s = CollectiveSources::shipped();
  EXPECT_GT(s.systems.size(), 10u);
  EXPECT_GT(s.fitted.size(), 5u);
  EXPECT_TRUE(is_collective_table(parse_csv(kTable, "rows.csv")));
  EXPECT_FALSE(is_collective_table(parse_csv("id,gpu\n", "rows.csv")));
}

TEST(ValidateCollectives, Mistakes) {
  const auto message = [](const std::string& table) {
    try {
      validate_collectives(parse_csv(table, "rows.csv"), {});
    } catch (const Error& e) {
      return e.text();
    }
    return std::string("no error");
  };
  EXPECT_EQ(message("system,nodes,gpus,collective,bytes,time_us\ndgx-h100,1,8,all_gather,none,5\n")
                .substr(0, 11),
            "rows.csv:2:");
  EXPECT_NE(message("system,nodes,gpus,collective,bytes\n").find("time_us"), std::string::npos);
  try {
    parse_collective_sources("systems:\n  - {name: x, preset: dgx-h1000}\n", "s.yaml");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.place().line, 2);
  }
}

}  // namespace
}  // namespace shardsim
