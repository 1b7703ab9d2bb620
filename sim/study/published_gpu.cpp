#include "sim/study/published_gpu.h"

#include "sim/cluster/catalogue.h"

namespace shardsim {
namespace {

struct GpuName {
  std::string_view text, gpu, assumed;
};

constexpr GpuName kGpus[] = {
    {"A100-80GB", "a100-sxm4-80gb", ""},
    {"A100-40GB", "a100-sxm4-40gb", ""},
    {"H100-80GB", "h100-sxm5-80gb", ""},
    {"H100-95GB", "h100-sxm5-96gb", ""},
    {"H100-95GB-HBM2e", "h100-sxm5-96gb", ""},
    {"H100-96GB-HBM2e-500W", "h100-sxm5-96gb", ""},
    {"A100-SXM4-40GB", "a100-sxm4-40gb", ""},
    {"A100-40GB-SXM", "a100-sxm4-40gb", ""},
    {"A100-SXM4-80GB", "a100-sxm4-80gb", ""},
    {"A100-80GB-SXM", "a100-sxm4-80gb", ""},
    {"A100-SXM", "a100-sxm4-80gb", "the 80 GB part"},
    {"A100", "a100-sxm4-80gb", "the 80 GB SXM part"},
    {"A100-PCIe", "a100-pcie-80gb", ""},
    {"A40", "a40", ""},
    {"H100-80GB-SXM", "h100-sxm5-80gb", ""},
    {"H100-SXM5-80GB", "h100-sxm5-80gb", ""},
    {"H100", "h100-sxm5-80gb", "the 80 GB SXM part"},
    {"H100 (unspecified host)", "h100-sxm5-80gb", "the 80 GB SXM part"},
    {"H100-500W", "h100-sxm5-96gb", ""},
    {"H100 (Meta variant)", "h100-sxm5-96gb", "the 96 GB part of 500 W"},
    {"H100-PCIe", "h100-pcie-80gb", ""},
    {"H200", "h200-sxm-141gb", ""},
    {"GH200", "gh200-96gb", "the part with 96 GB"},
    {"B200", "b200-sxm", ""},
    {"B200 class (SM100)", "b200-sxm", "a B200"},
    {"B300", "b300-sxm", ""},
    {"GB200", "gb200", ""},
    {"SM100 (2.5 PF class)", "gb200", "a GB200, whose peak it is"},
    {"L40S", "l40s", ""},
    {"RTX4090", "rtx4090", ""},
    {"MI300X", "mi300x", ""},
};

}  // namespace

std::optional<PublishedGpu> published_gpu(std::string_view text) {
  for (const GpuEntry& entry : gpu_catalogue())
    if (entry.name == text) return PublishedGpu{entry.name, ""};
  for (const GpuName& name : kGpus)
    if (name.text == text) return PublishedGpu{name.gpu, name.assumed};
  return std::nullopt;
}

}  // namespace shardsim
