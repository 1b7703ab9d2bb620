#include "sim/model/autocast.h"

namespace shardsim {

AutocastPolicy autocast_policy(OpKind op) {
  switch (op) {
    case OpKind::linear:
    case OpKind::matmul:
    case OpKind::attention: return AutocastPolicy::lower;
    case OpKind::rms_norm:
    case OpKind::layer_norm: return AutocastPolicy::fp32;
    default: return AutocastPolicy::none;
  }
}

StageClass under_autocast(const StageClass& stage, DType to,
                          const std::function<DType(int32_t)>& type_of) {
  StageClass out = stage;
  out.steps.clear();
  for (const Step& step : stage.steps) {
    const AutocastPolicy policy =
        step.what == Step::What::run ? autocast_policy(step.op) : AutocastPolicy::none;
    if (policy == AutocastPolicy::none) {
      out.steps.push_back(step);
      if (step.op == OpKind::cross_entropy) out.steps.back().shape.autocast = true;
      continue;
    }
    const DType type = policy == AutocastPolicy::lower ? to : DType::fp32;
    std::vector<int16_t> made;
    Step run = step;
    const auto make = [&](OpKind op, int16_t in, int32_t param, int64_t numel) {
      Step cast;
      cast.op = op;
      cast.shape.rows = 1;
      cast.shape.in = numel;
      cast.shape.to = type;
      cast.in[0] = in;
      cast.param[0] = param;
      cast.out[0] = out.slots++;
      out.steps.push_back(cast);
      made.push_back(cast.out[0]);
      return cast.out[0];
    };
    // C++ evaluates the casts among the call's arguments from the last to the first.
    for (int i = 1; i >= 0; --i) {
      if (step.param[i] < 0 || type_of(step.param[i]) == type) continue;
      const int64_t numel = policy == AutocastPolicy::fp32 ? step.shape.in
                            : i == 1                       ? step.shape.out
                                                           : step.shape.in * step.shape.out;
      run.in[static_cast<size_t>(i) + 1] = make(OpKind::cast_param, -1, step.param[i], numel);
      run.param[i] = -1;
    }
    for (int i = 2; i >= 0; --i)
      if (step.in[i] >= 0) run.in[i] = make(OpKind::cast, step.in[i], -1, 0);
    out.steps.push_back(run);
    // Temporaries go in the reverse order.
    for (auto slot = made.rbegin(); slot != made.rend(); ++slot) {
      Step drop;
      drop.what = Step::What::drop;
      drop.out[0] = *slot;
      out.steps.push_back(drop);
    }
  }
  return out;
}

}  // namespace shardsim
