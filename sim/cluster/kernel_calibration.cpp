#include "sim/cluster/kernel_calibration.h"

namespace shardsim {
namespace {

using K = KernelCalibration;
using A = AttentionCurve;

constexpr KernelConstantInfo kKernel[] = {
    {"gemm_efficiency", &K::gemm_efficiency, .01, 1.5, .15, "of the dense peak"},
    {"gemm_k_half", &K::gemm_k_half, 1, 1e5, .5, "inner dimension of half the rate"},
    {"gemm_wave_weight", &K::gemm_wave_weight, 0, 1, .5, "how much the last wave's tail counts"},
    {"gemm_tile_128", &K::gemm_tile_128, .01, 1.5, .1, "rate of tiles of 128 x 128"},
    {"gemm_tile_64", &K::gemm_tile_64, .01, 1.5, .3, "rate of tiles of 128 x 64"},
    {"gemm_tile_64x64", &K::gemm_tile_64x64, .01, 1.5, .3, "rate of tiles of 64 x 64"},
    {"gemm_split_us", &K::gemm_split_us, 0, 1e4, .7, "to add up the parts of a split k"},
    {"gemm_memory_fraction", &K::gemm_memory_fraction, .01, 1.5, .1, "of the memory rate"},
    {"gemm_fixed_us", &K::gemm_fixed_us, 0, 1e4, .5, "of each product"},
    {"gemm_unaligned", &K::gemm_unaligned, .01, 1, 0, "of the rate, rows no multiple of 16 bytes"},
    {"gemm_fp8", &K::gemm_fp8, .01, 1.5, .15, "of the efficiency, fp8 at twice the peak"},
    {"gemm_best_tflops", &K::gemm_best_tflops, 0, 1e6, 0, "the best 16-bit rate published"},
    {"attention_fixed_us", &K::attention_fixed_us, 0, 1e4, 0, "of each attention kernel"},
    {"vec", &K::vec, .01, 1.5, .1, "of the memory rate: contiguous elementwise kernels"},
    {"gated", &K::gated, .01, 2, .3, "of vec: the activation of SwiGLU"},
    {"rms_norm", &K::rms_norm, .01, 2, .3, "of vec"},
    {"kernel_fixed_us", &K::kernel_fixed_us, 0, 1e4, .5, "of each memory-bound kernel"},
    {"kernel_floor_us", &K::kernel_floor_us, 0, 1e4, 0, "the least a kernel takes"},
};

constexpr CurveConstantInfo kCurve[] = {
    {"tflops", &A::tflops, .01, 1e6, .7},
    {"half_length", &A::half_length, 0, 1e6, .7},
    {"causal", &A::causal, .01, 2, .1},
    {"causal_half_length", &A::causal_half_length, 0, 1e6, .7},
    {"head_64", &A::head_64, .01, 2, .1},
    {"head_256", &A::head_256, .01, 2, .1},
};

}  // namespace

std::span<const KernelConstantInfo> kernel_constants() { return kKernel; }
std::span<const CurveConstantInfo> curve_constants() { return kCurve; }

}  // namespace shardsim
