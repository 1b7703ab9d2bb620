// Scenarios written in C++, laid out and played with prices given by hand: what the tests of the
// schedule, the machine and the study stand on. A price is a function of a Work, so a test can say
// "a product takes 25, an all-gather 10, all else nothing" where the flat cost model cannot.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sim/cost/flat.h"
#include "sim/engine/machine.h"
#include "sim/plan/plan.h"
#include "sim/plan/scenario.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/streams.h"
#include "sim/schedule/training_program.h"

namespace shardsim::test {

// `blocks` blocks of the same linears ([out, in]); the input requires a gradient, no optimizer.
inline Scenario stack_scenario(int blocks, std::vector<LinearShape> linears = {{1024, 1024}},
                               int64_t ranks = 8) {
  Scenario s;
  s.name = "stack";
  s.model.family = Family::stack;
  s.model.naming = Naming::recorder;
  s.model.hidden = linears.front().in;
  s.model.linear_blocks.assign(static_cast<size_t>(blocks), linears);
  s.model.input_grad = true;
  s.cluster.gpu.sms = 132;
  s.cluster.gpu.memory_bytes = 80 * kGiB;
  s.training.mesh.shard = ranks;
  s.training.micro_batch = 64;
  s.training.float_loss = false;
  s.training.optimizer.name = Optimizer::Name::none;
  s.cost.model = CostChoice::Model::flat;
  return s;
}

// The same with a root that owns a linear before and one after the blocks, and an input without a
// gradient, so that the root's reduction comes from the final callback.
inline Scenario rooted_scenario(int blocks, int64_t ranks = 8) {
  Scenario s = stack_scenario(blocks, {{64, 64}}, ranks);
  s.model.root_first = s.model.root_last = {64, 64};
  s.model.input_grad = false;
  return s;
}

// 4 groups of one (4096, 256) parameter on 8 ranks, a root without parameters.
inline Scenario bag_scenario(int blocks = 4) {
  Scenario s = stack_scenario(1);
  s.name = "bag";
  s.model.family = Family::bag;
  s.model.hidden = 256;
  s.model.linear_blocks.clear();
  s.model.bag_blocks.assign(static_cast<size_t>(blocks), {{4096, 256}});
  s.training.micro_batch = 1;
  s.training.float_loss = true;
  return s;
}

// The recorder's llama: no RoPE, F.rms_norm, bf16 compute and fp32 reduction.
inline Scenario llama_scenario(int64_t layers, int64_t micro_batch, int64_t seq_len) {
  Scenario s = stack_scenario(1);
  s.name = "llama";
  s.model = {};
  s.model.naming = Naming::recorder;
  s.model.vocab = 2048;
  s.model.hidden = 512;
  s.model.layers = layers;
  s.model.ffn = 1536;
  s.model.heads = 8;
  s.model.kv_heads = 4;
  s.model.head_dim = 64;
  s.training.micro_batch = micro_batch;
  s.training.seq_len = seq_len;
  s.training.float_loss = true;
  s.training.precision.compute = DType::bf16;
  s.training.precision.reduce = DType::fp32;
  return s;
}

inline Scenario gpt2_scenario(int64_t layers, int64_t micro_batch, int64_t seq_len) {
  Scenario s = llama_scenario(layers, micro_batch, seq_len);
  s.name = "gpt2";
  s.model.family = Family::gpt2;
  s.model.naming = Naming::hugging_face;
  s.model.vocab = 1000;
  s.model.hidden = 256;
  s.model.ffn = 1024;
  s.model.heads = s.model.kv_heads = 4;
  s.model.max_positions = 1024;
  s.model.tied = true;
  s.model.qkv_bias = s.model.o_bias = s.model.mlp_bias = true;
  return s;
}

using Price = std::function<Time(const Work&)>;

struct Played {
  Model model;
  Plan plan;
  Schedule schedule;
  Trace trace;
};

// Without a price: the flat cost model of the scenario.
inline Played play(const Scenario& scenario, int steps = 1, const Price& price = {}) {
  Played p;
  p.model = build_model(scenario.model);
  freeze(p.model, scenario.training.frozen);
  p.plan = build_plan(p.model, scenario.training);
  {
    TrainingProgram program(p.model, p.plan, scenario, p.schedule);
    program.initialize();
    for (int i = 0; i < steps; ++i) program.step();
  }
  CostTable costs = flat_costs(scenario.cost.flat, p.schedule);
  if (price)
    for (size_t i = 0; i < p.schedule.works.size(); ++i) costs.work[i] = price(p.schedule.works[i]);
  Machine machine;
  machine.play(p.schedule, costs, p.trace);
  return p;
}

struct Launched {
  const Work* work = nullptr;
  StreamId stream = 0;
  Time start, end;
  std::string section;  // the mark that ends it: "step0.0.after_forward"
  GroupId compute;      // whose operators; none for the runtime's own
};

inline std::vector<Launched> launches(const Played& p) {
  std::vector<Launched> out;
  size_t first = 0;
  p.schedule.for_each([&](const Instr& in, const Segment& segment) {
    if (in.kind == Kind::Mark) {
      for (; first < out.size(); ++first) out[first].section = p.schedule.marks[in.a].name;
    } else if (in.kind == Kind::Launch) {
      const size_t i = out.size();
      out.push_back({&p.schedule.works[in.a], in.stream, p.trace.start[i], p.trace.end[i], "",
                     segment.group});
    }
  });
  return out;
}

inline std::string group_name(const Played& p, GroupId g) {
  std::string name = p.plan.groups[g.v].name(p.model);
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

// What the FSDP runtime did, in host order, up to each mark: u<group> an all-gather, p<group> a
// reduce-scatter, r<group> the unsharded parameters freed. `kinds` says which of them.
inline std::map<std::string, std::string> runtime_log(const Played& p,
                                                      const std::string& kinds = "upr") {
  std::map<std::string, std::string> out;
  std::string now, last;
  const auto say = [&](char kind, GroupId g) {
    const std::string word = kind + group_name(p, g);
    // The parameters of a group go one after the other.
    if (kinds.find(kind) == std::string::npos || (kind == 'r' && word == last)) return;
    now += (now.empty() ? "" : " ") + word;
    last = word;
  };
  p.schedule.for_each([&](const Instr& in, const Segment& segment) {
    if (in.kind == Kind::Mark) {
      out[p.schedule.marks[in.a].name] = now;
      now.clear();
      last.clear();
    } else if (in.kind == Kind::Launch) {
      const Work& w = p.schedule.works[in.a];
      if (w.kind == WorkKind::AllGather) say('u', w.group);
      if (w.kind == WorkKind::ReduceScatter) say('p', w.group);
    } else if (in.kind == Kind::Free) {
      const Buffer& b = p.schedule.buffers[segment.buffer(in).v];
      if (b.category == Category::unsharded_parameters) say('r', b.group);
    }
  });
  return out;
}

struct CollectiveCounts {
  int all_gather = 0, reduce_scatter = 0, all_reduce = 0;
  friend bool operator==(const CollectiveCounts&, const CollectiveCounts&) = default;
};

// Of the sections whose mark contains `part`.
inline CollectiveCounts collectives(const Played& p, const std::string& part) {
  CollectiveCounts c;
  for (const Launched& l : launches(p)) {
    if (l.section.find(part) == std::string::npos) continue;
    c.all_gather += l.work->kind == WorkKind::AllGather;
    c.reduce_scatter += l.work->kind == WorkKind::ReduceScatter;
    c.all_reduce += l.work->kind == WorkKind::AllReduce;
  }
  return c;
}

// Live bytes, counted here and not by the machine: by section the highest and the last, all pools
// together and each alone. Blocks are rounded up to 512 bytes.
struct SectionMemory {
  Bytes peak = 0, end = 0;
  std::map<StreamId, Bytes> pool_peak;
};

inline std::map<std::string, SectionMemory> live_memory(const Schedule& schedule) {
  std::map<std::string, SectionMemory> out;
  SectionMemory now;
  std::map<StreamId, Bytes> pool;
  Bytes live = 0;
  LiveWalk walk;
  schedule.for_each([&](const Instr& in, const Segment& segment) {
    if (in.kind == Kind::Mark) {
      now.end = live;
      out[schedule.marks[in.a].name] = now;
      now = {live, live, pool};
      return;
    }
    const int change = walk.change(in);
    if (change == 0) return;
    const Buffer& b = schedule.buffers[segment.buffer(in).v];
    const Bytes bytes = (b.bytes + 511) / 512 * 512 * change;
    live += bytes;
    pool[b.pool] += bytes;
    now.peak = std::max(now.peak, live);
    now.pool_peak[b.pool] = std::max(now.pool_peak[b.pool], pool[b.pool]);
  });
  return out;
}

}  // namespace shardsim::test
