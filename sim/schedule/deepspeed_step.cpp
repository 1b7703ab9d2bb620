// The small kernels of DeepSpeed's step: overflow, norm, clipping. Their tensors of one number are left
// out, but for those that stay.
#include <numeric>

#include "sim/model/operators.h"
#include "sim/schedule/deepspeed.h"
#include "sim/schedule/streams.h"
#include "sim/schedule/works.h"

namespace shardsim {

namespace {

// torch.isfinite: x == x, |x|, |x| != inf, and their product.
constexpr int kIsFinite = 4;
constexpr Bytes kNormType = 8;  // get_norm_dtype(): fp64

}  // namespace

void DeepSpeedEngine::has_inf_or_nan(int64_t numel, DType type) {
  const Bytes element = bytes_of(type);
  for (const char* name : {"amax", "amin"}) {
    full_reduction(name, numel, numel * element, element);
    scalars("isfinite", kIsFinite);
  }
  scalars("logical", 2);  // and, not
  scalars("add", 1);
}

void DeepSpeedEngine::reduce_overflow() {
  scalars("cast", 2);  // bool, byte
  host_.collective(kCompute, collective(WorkKind::AllReduce, "overflow", 1, DType::bf16));
  item(1);
}

void DeepSpeedEngine::norm_of(const std::vector<int64_t>& numels, DType type, Norm norm) {
  for (int64_t n : numels) {
    const BufferId wide = make(n * kNormType, kCompute, Category::optimizer);
    pointwise("cast", n * (kNormType + bytes_of(type)));
    full_reduction("norm", n, n * kNormType, kNormType);
    drop(wide);
  }
  if (!cat(kCompute, numels.size(), kNormType * static_cast<Bytes>(numels.size()), "stack"))
    host_.launch(kCompute, copy(WorkKind::CopyD2D, "stack", kNormType));
  scalars("pow", 1);
  host_.launch(kCompute, kernel("sum", KernelClass::reduction,
                                kNormType * static_cast<Bytes>(numels.size())));
  // Stages 1 and 2 add their norms in fp32.
  const bool narrows = norm == Norm::stages12;
  if (narrows) scalars("cast", 1);
  host_.collective(kCompute,
                   collective(WorkKind::AllReduce, "grad_norm", narrows ? 4 : 8, DType::fp32));
  scalars("pow", 1);
  // What is infinite or no number becomes -1: in place, with a number from the host
  // (mask_nan_or_inf_with_val_inplace), or by torch.where.
  scalars("isinf", 2);
  scalars("isnan", 1);
  scalars("logical_or", 1);
  host_.launch(kCompute, copy(WorkKind::CopyH2D, "tensor", 4));
  host_.stream_sync(kCompute);
  if (narrows) {
    item(4);
    scalars("masked_fill", 1);
  } else {
    scalars("where", 2);
  }
}

void DeepSpeedEngine::combine_norms(size_t groups, Bytes element) {
  if (!cat(kCompute, groups, element * static_cast<Bytes>(groups), "stack"))
    host_.launch(kCompute, copy(WorkKind::CopyD2D, "stack", element));
  const auto any = [&] {
    if (groups < 2)
      host_.launch(kCompute, copy(WorkKind::CopyD2D, "any", 1));
    else
      scalars("any", 1);
  };
  scalars("isfinite", kIsFinite);
  scalars("logical", 3);  // not, less, or
  any();
  scalars("norm", 1);
  scalars("full_like", 1);
  scalars("where", 1);
  is_invalid_grad_norm();
  scalars("div", 1);  // _global_grad_norm
}

void DeepSpeedEngine::is_invalid_grad_norm() {
  scalars("isfinite", kIsFinite);
  scalars("logical", 3);
  host_.launch(kCompute, copy(WorkKind::CopyD2D, "any", 1));
  item(1);
}

// clip = (norm / loss_scale + 1e-6) / clip_grad, clamped, times the loss scale; 1. / clip.
void DeepSpeedEngine::unscale_and_clip(int64_t numel) {
  if (options_.gradient_clipping <= 0) return;
  is_invalid_grad_norm();
  scalars("clip", 7);
  pointwise("mul", 8 * numel);
}

}  // namespace shardsim
