#include "sim/study/run_report.h"

#include "sim/cost/assumptions.h"
#include "sim/cost/stragglers.h"
#include "sim/model/program.h"
#include "sim/plan/attention.h"
#include "sim/study/link_report.h"
#include "sim/study/memory_snapshot.h"
#include "sim/study/priced_form.h"

namespace shardsim {

namespace {

// FLOPs of products and attention in the last step, and those of them that were recomputed.
struct StepFlops {
  int64_t all = 0, recomputed = 0;
};

StepFlops step_flops(const Schedule& schedule) {
  StepFlops f;
  schedule.for_each_of_last_step([&](const Instr& in, const Segment&) {
    if (in.kind != Kind::Launch) return;
    const Work& w = schedule.works[in.a];
    if (w.kind != WorkKind::Gemm && w.kernel != KernelClass::attention) return;
    f.all += w.flops;
    if (w.recomputed) f.recomputed += w.flops;
  });
  return f;
}

double peak_tflops(const Gpu& gpu, DType compute) {
  switch (compute) {
    case DType::bf16: return gpu.bf16_tflops;
    case DType::fp16: return gpu.fp16_tflops;
    // PyTorch multiplies fp32 matrices in fp32 unless TF32 is allowed.
    default: return gpu.fp32_tflops;
  }
}

}  // namespace

std::vector<GroupRow> group_rows(const Model& model, const Plan& plan, const Training& training) {
  std::vector<GroupRow> rows;
  rows.reserve(plan.groups.size());
  for (const Group& g : plan.groups) {
    GroupRow r;
    r.name = g.modules.size() == 1 && g.modules[0].v == 0 ? "" : g.name(model);
    r.numel = g.numel;
    r.padded_numel = g.padded();
    r.shard_bytes = g.shard * bytes_of(training.precision.storage);
    if (!keeps_parameters_whole(training.strategy)) {
      r.all_gather_bytes = all_gather_bytes(g, training.precision);
      r.reduce_scatter_bytes = reduce_scatter_bytes(g, model, training);
    }
    const ShardState& s = plan.states[g.state];
    r.reshard = s.reshard == Reshard::Kind::to   ? std::to_string(s.reshard_ranks)
                : s.reshard == Reshard::Kind::no ? "false"
                                                 : "true";
    for (ModuleId block : model.blocks)
      if (block.v <= g.modules[0].v && g.modules[0].v < model.modules[block.v].end)
        r.block = model.module_name(block);
    rows.push_back(std::move(r));
  }
  return rows;
}

ModelFacts model_facts(const Scenario& scenario, const Model& model) {
  ModelFacts f;
  f.name = model.architecture.name;
  f.params = model.numel();
  f.flops_per_token = static_cast<double>(model_flops_per_token(model, scenario.training.seq_len));
  f.hardware_flops_per_token = f.flops_per_token;
  const bool decoder = takes_tokens(model.architecture.family);
  f.mfu_definition = decoder ? "6 (N - embedding) + 12 layers heads head_dim seq_len FLOPs a token "
                               "over the dense peak of the compute type (torchtitan)"
                             : "6 N FLOPs a row over the dense peak of the compute type";
  if (model.architecture.experts > 0)
    f.mfu_definition =
        "6 (N of a token's experts - embedding) + 12 layers heads head_dim seq_len "
        "FLOPs a token over the dense peak of the compute type";
  if (model.architecture.family == Family::t5)
    f.mfu_definition =
        "6 (N - embedding) + 36 layers heads head_dim seq_len FLOPs a token of source "
        "and target over the dense peak of the compute type";
  return f;
}

RunFacts run_facts(const Scenario& scenario) {
  const Training& t = scenario.training;
  RunFacts run;
  run.name = scenario.name;
  run.strategy = name_of(t.strategy);
  run.cluster = scenario.cluster;
  run.world = t.mesh.world();
  const bool decoder = takes_tokens(scenario.model.family);
  run.tokens_per_step = t.micro_batch * t.grad_accum * t.forwards * (decoder ? t.seq_len : 1);
  const DType compute = product_dtype(t.precision);
  run.peak_tflops = peak_tflops(scenario.cluster.gpu, compute);
  run.compute_dtype = name_of(compute);
  run.scale_tax = scale_tax_of(scenario, effective_calibration(scenario));
  return run;
}

StepReport run_report(const Scenario& scenario, const Simulation& s) {
  ModelFacts model = model_facts(scenario, s.model);
  const StepFlops f = step_flops(s.schedule);
  if (f.all > f.recomputed)
    model.hardware_flops_per_token *=
        static_cast<double>(f.all) / static_cast<double>(f.all - f.recomputed);
  StepReport report =
      make_step_report(run_facts(scenario), std::move(model),
                       group_rows(s.model, s.plan, scenario.training), s.schedule, s.trace);
  report.planning =
      scenario.training.token_budget > 0 && !s.trace.out_of_memory
          ? plan_tokens(scenario.training.token_budget, report.run.tokens_per_step,
                        report.step_time_s(), report.run.world, scenario.cluster.price_per_gpu_hour)
          : std::nullopt;
  report.priced_with = priced_with(scenario);
  add_form(scenario, report);
  add_links(scenario, s, report);
  if (scenario.options.memory == MemoryLevel::blocks)
    report.memory.free_blocks = free_at_peak(scenario, s, 8).largest;
  return report;
}

}  // namespace shardsim
