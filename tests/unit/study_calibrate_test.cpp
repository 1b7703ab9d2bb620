// Constants from tables that were made from known constants, or small enough to solve by hand.
#include "sim/study/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/base/error.h"
#include "sim/cluster/catalogue.h"
#include "sim/study/calibrate_links.h"
#include "sim/study/pattern_search.h"

namespace shardsim {
namespace {

constexpr std::string_view kKernels =
    "kind,gpu,dtype,M,N,K,shape,time_us,tflops,gbytes_s,source,note\n";
constexpr std::string_view kNccl = "gpu,system,nodes,gpus,collective,bytes,time_us,source\n";

CsvTable kernels(const std::string& rows) {
  return parse_csv(std::string(kKernels) + rows, "kernels.csv");
}
CsvTable nccl(const std::string& rows) { return parse_csv(std::string(kNccl) + rows, "nccl.csv"); }

std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(PatternSearch, FindsTheLeast) {
  std::vector<double> x{1};
  pattern_search([](const std::vector<double>& v) { return std::pow(std::log(v[0] / 3), 2); }, x);
  EXPECT_NEAR(x[0], 3, .003);
  // A kink along a diagonal: |ln a b| + |ln a / 2|.
  std::vector<double> two{1, 1};
  pattern_search(
      [](const std::vector<double>& v) {
        return std::abs(std::log(v[0] * v[1])) + std::abs(std::log(v[0] / 2));
      },
      two);
  EXPECT_NEAR(two[0], 2, .01);
  EXPECT_NEAR(two[1], .5, .01);
}

// By hand. Three made-up gathers over 8 ranks, 7 steps and a share of 7/8:
//   354,000,000 bytes   7 x 5 + 875  = 910 us
//   708,000,000         7 x 5 + 1750 = 1785 us
//   1,416,000,000       7 x 5 + 3500 = 3535 us
// all of alpha 5 and 354 GB/s.
TEST(FitLinks, ThreeRowsByHand) {
  const CalibrationFile f = fit_links(nccl("H100,dgx,1,8,all_gather,354000000,910,a\n"
                                           "H100,dgx,1,8,all_gather,708000000,1785,a\n"
                                           "H100,dgx,1,8,all_gather,1416000000,3535,a\n"),
                                      "");
  EXPECT_NEAR(f.links.at("intra").alpha_us, 5, .005);
  EXPECT_NEAR(f.links.at("intra").bus_gbps, 354, .1);
  ASSERT_EQ(f.data.size(), 1u);
  EXPECT_EQ(f.data[0].rows, 3);
  EXPECT_NEAR(f.data[0].residual_pct, 0, .01);
}

// By hand, with rows that do not agree: over 2 ranks one step and a share of 1/2, so t = alpha + x / B with
// x = 50, 100, 200 million bytes and t = 100, 160, 320 us. Relative least squares, per row
// (1/t, x/t) = (.01, .5), (.00625, .625), (.003125, .625) and right side 1 (x in millions, B in
// 1e6 bytes/us):
//   aa = 1e-4 + 3.90625e-5 + 9.765625e-6 = 1.48828125e-4
//   ab = 5e-3 + 3.90625e-3 + 1.953125e-3 = 1.0859375e-2
//   bb = .25 + .390625 + .390625 = 1.03125;  a1 = .019375;  b1 = 1.75
//   determinant 1.534790e-4 - 1.179260e-4 = 3.555298e-5
//   alpha = (.019375 x 1.03125 - 1.75 x 1.0859375e-2) / determinant = 2.74... (below)
//   1/B   = (1.75 x 1.48828125e-4 - .019375 x 1.0859375e-2) / determinant
// numerators 1.9980469e-2 - 1.9003906e-2 = 9.765625e-4 and 2.6044922e-4 - 2.1040039e-4 = 5.0048828e-5:
// alpha 27.468 us, 1/B 1.40773 us per million bytes, B 710.36 GB/s.
TEST(FitLinks, RowsThatDisagreeByHand) {
  const CalibrationFile f = fit_links(nccl("H100,two,1,2,all_gather,100000000,100,a\n"
                                           "H100,two,1,2,reduce_scatter,200000000,160,a\n"
                                           "H100,two,1,2,all_gather,400000000,320,a\n"),
                                      "");
  EXPECT_NEAR(f.links.at("intra").alpha_us, 27.468, .01);
  EXPECT_NEAR(f.links.at("intra").bus_gbps, 710.36, .2);
}

// All-reduces count twice: 2 x 7 steps, 14/8 of the bytes; 64 x the same on the network.
TEST(FitLinks, LinksByPlaceAndCollective) {
  const CsvTable t = nccl(
      "H100,dgx,1,8,all_reduce,354000000,1820,a\n"   // 14 x 5 + 1750
      "H100,dgx,1,8,all_reduce,708000000,3570,a\n"   // 14 x 5 + 3500
      "H100,dgx,2,16,all_gather,160000000,615,a\n"   // 15 x 1 + 600 at 250 GB/s
      "H100,dgx,2,16,all_gather,320000000,1215,a\n"  // 15 x 1 + 1200
      "H100,dgx,2,16,all_reduce,320000000,9999,a\n"  // no ring, and there are gathers
      "H100,dgx,2,2,all_gather,100000000,1010,a\n"   // 10 + 1000 at 50 GB/s
      "H100,dgx,2,2,all_gather,200000000,2010,a\n"
      "H100,dgx,2,8,all_gather,200000000,5,a\n"  // half of the GPUs
      "H100,dgx,1,8,all_reduce,1024,30,a\n");    // another protocol
  const CalibrationFile f = fit_links(t, "dgx");
  EXPECT_NEAR(f.links.at("intra").alpha_us, 5, .005);
  EXPECT_NEAR(f.links.at("intra").bus_gbps, 354, .1);
  EXPECT_NEAR(f.links.at("inter").alpha_us, 1, .005);
  EXPECT_NEAR(f.links.at("inter").bus_gbps, 250, .1);
  EXPECT_NEAR(f.links.at("rail").alpha_us, 10, .01);
  EXPECT_NEAR(f.links.at("rail").bus_gbps, 50, .02);
}

TEST(FitLinks, Mistakes) {
  const auto fit = [](const std::string& rows, const std::string& system = "") {
    return message([&] { fit_links(nccl(rows), system); });
  };
  EXPECT_EQ(fit(""), "no row of the table can be used");
  EXPECT_EQ(fit("H100,dgx,1,8,all_gather,1024,10,a\n"), "no row of the table can be used");
  EXPECT_EQ(fit("H100,dgx,1,8,all_gather,354000000,910,a\n"),
            "links.intra: only one row can be used: alpha and bandwidth need two");
  EXPECT_EQ(fit("H100,dgx,1,8,all_gather,354000000,910,a\n"
                "H100,dgx,1,8,all_gather,354000000,920,a\n"),
            "links.intra: rows of one size cannot tell latency from bandwidth");
  EXPECT_EQ(fit("H100,a,1,8,all_gather,354000000,910,a\n"
                "H100,b,1,8,all_gather,354000000,920,a\n"),
            "the table has rows of 2 systems");
  EXPECT_EQ(fit("H100,a,1,8,all_gather,354000000,nan,a\n"),
            "time_us: expected a number, got 'nan'");
  EXPECT_EQ(fit("H100,a,1,8,all_gather,354000000,910,a\n", "b"),
            "--system: the table has no rows of 'b'");
}

// Rows that were made with known constants give them back: the memory rate of an A100 is 2,039 GB/s.
TEST(CalibrateKernels, MemoryBoundKernelsGiveTheirFractionsBack) {
  std::string rows;
  for (const int64_t m : {4096, 8192, 16384, 32768}) {
    const double bytes = 3.0 * 2 * static_cast<double>(m) * 8192;
    const auto row = [&](const char* name, double fraction, double tensors) {
      rows += "membound,A100-80GB-SXM,bf16,,,," + std::string(name) + " " + std::to_string(m) +
              "x8192," + std::to_string(bytes / 3 * tensors / (2039e3 * fraction) + 1.5) +
              ",,,s,\n";
    };
    row("residual add", .9, 3);
    row("RMSNorm", .9 * .4, 2);
  }
  CalibrateOptions o;
  o.date = "2026-11-30";
  const CalibrationFile f = calibrate_kernels(kernels(rows), o);
  EXPECT_EQ(f.gpu, "a100-sxm4-80gb");
  EXPECT_NEAR(f.kernel->vec, .9, .009);
  EXPECT_NEAR(f.kernel->rms_norm, .4, .004);
  EXPECT_EQ(f.kernel->gated, KernelCalibration().gated);  // no row says anything about it
  EXPECT_EQ(f.from.at("gated"), "assumed");
  EXPECT_EQ(f.from.at("vec"), "fitted, 8 rows");
  // What is written is what was fitted.
  const CalibrationFile back = parse_calibration(calibration_yaml(f), "x.yaml");
  EXPECT_EQ(back.kernel->vec, f.kernel->vec);
  EXPECT_EQ(back.data.size(), 1u);
  EXPECT_EQ(back.data[0].rows, 8);
}

TEST(CalibrateKernels, RowsBeyondTheBestRateAreNotFitted) {
  std::string rows;
  for (const int64_t n : {2048, 4096, 8192}) {
    const double us = 2.0 * 4096 * static_cast<double>(n) * 4096 / 600e6;
    rows += "gemm,H100-80GB-SXM,bf16,4096," + std::to_string(n) + ",4096,," + std::to_string(us) +
            ",,,good,\n";
  }
  CalibrateOptions o;
  o.split.emplace();
  o.split->fitted = {"good", "impossible"};
  o.split->best_tflops = {{"h100-sxm5-80gb", 794.5}};
  const CalibrationFile without = calibrate_kernels(kernels(rows), o);
  rows += "gemm,H100-80GB-SXM,bf16,4096,4096,4096,,1,,,impossible,\n";  // 137,000 TFLOPS
  rows += "gemm,H100-80GB-SXM,bf16,4096,4096,4096,,9999,,,elsewhere,\n";
  const CalibrationFile with = calibrate_kernels(kernels(rows), o);
  EXPECT_EQ(with.kernel->gemm_efficiency, without.kernel->gemm_efficiency);
  ASSERT_EQ(with.data.size(), 1u);
  EXPECT_EQ(with.data[0].source, "good");
}

TEST(CalibrateKernels, Mistakes) {
  const auto fit = [](const std::string& rows, const std::string& gpu = "") {
    return message([&] {
      CalibrateOptions o;
      o.gpu = gpu;
      calibrate_kernels(kernels(rows), o);
    });
  };
  const std::string add = "membound,H100-80GB-SXM,bf16,,,,residual add 4096x8192,62,,,s,\n";
  EXPECT_EQ(fit(""), "no row of the table can be fitted");
  EXPECT_EQ(fit("gemm,TPU,bf16,1,1,1,,1,,,s,\n"), "no row of the table can be fitted");
  EXPECT_EQ(fit(add), "only one row can be used: constants need two and more");
  EXPECT_EQ(fit(add + "gemm,A40,bf16,512,512,512,,9,,,s,\n"),
            "the table has rows of 2 GPUs: a40, h100-sxm5-80gb");
  EXPECT_EQ(fit(add + "gemm,A40,bf16,512,512,512,,nan,,,s,\n"),
            "time_us: expected a number, got 'nan'");
  EXPECT_EQ(fit(add + "gemm,A40,bf16,0,512,512,,9,,,s,\n"),
            "M: expected a whole number from 1 to 1e9, got '0'");
  EXPECT_EQ(fit(add, "a40"), "no row of a40 can be fitted");
  EXPECT_EQ(message([] { kernel_rows(parse_csv("kind,gpu,colour\n", "k.csv")); }),
            "unknown column 'colour'");
}

}  // namespace
}  // namespace shardsim
