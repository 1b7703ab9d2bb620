#include "sim/schedule/fsdp2.h"

#include <algorithm>
#include <cmath>

#include "sim/base/error.h"
#include "sim/schedule/host_optimizer.h"
#include "sim/schedule/multi_tensor.h"
#include "sim/schedule/streams.h"
#include "sim/schedule/works.h"

namespace shardsim {

namespace {

// Pointer table of a copy-out, in bytes (kernel-sequence.md 6, read in split_with_sizes_copy's
// source): two 512-parameter groups on 8 ranks, 524,288 B each, take 4168.
Bytes copy_out_table(const Group& g, int64_t shard_divisor, int64_t ranks,
                     const Precision& precision, int sms) {
  int64_t blocks = 0;
  const auto bytes = [&](const ShardedParam& p) {
    return p.shard * g.ranks / shard_divisor * bytes_of(compute_dtype(p, precision));
  };
  for (const ShardedParam& p : g.params) blocks += ceil_div(bytes(p), 2048);
  const int64_t t = ceil_div(blocks * ranks, int64_t{32} * sms);
  auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(t)));
  while (root * root < t) ++root;
  const int64_t r = std::max<int64_t>(1, std::min(root, ranks));
  const int64_t q = std::max<int64_t>(1, ceil_div(t, r));
  int64_t entries = 0;
  for (const ShardedParam& p : g.params) entries += ceil_div(bytes(p), 2048 * q);
  return 8 * (4 * static_cast<int64_t>(g.params.size()) + 1 + entries);
}

Bytes chunk_cat_table(const Group& g, int64_t element) {
  int64_t entries = 0;
  for (const ShardedParam& p : g.params) entries += ceil_div(p.shard * element, 2048);
  return 8 * (6 * static_cast<int64_t>(g.params.size()) + 2 + entries);
}

}  // namespace

DivideFactors divide_factors(DType reduce, int64_t ranks, double factor, bool force_sum) {
  const double n = factor > 0 ? factor : static_cast<double>(ranks);
  if (reduce == DType::fp32 || reduce == DType::bf16) return {1, force_sum ? n : 1};
  double pre = 1;
  while (std::fmod(n, pre) == 0 && n / pre > pre) pre *= 2;
  return {pre, n / pre};
}

Fsdp2::Fsdp2(Host& host, const Model& model, const Plan& plan, const Training& training, int sms)
    : host_(host),
      model_(model),
      plan_(plan),
      training_(training),
      sms_(sms),
      compute_(compute_dtype(training.precision)),
      reduce_(reduce_dtype(training)),
      stored_(training.precision.storage) {
  const Mesh& mesh = plan.mesh;
  const int64_t second = training.fsdp2.second_mesh.shard;
  const bool two_meshes = !training.fsdp2.second_mesh.patterns.empty();
  if (hsdp()) replicate_comm_ = host.communicator(mesh.replicate, mesh.shard, "replicate");
  shard_comm_ = host.communicator(mesh.shard, 1, "shard");
  CommId second_comm;
  if (two_meshes) {
    host.communicator(mesh.shard / second, second, "second mesh (outer, unused)");
    second_comm = host.communicator(second, 1, "second mesh");
  }
  CommId reduce = shard_comm_, second_reduce = second_comm;
  if (training.fsdp2.separate_reduce_scatter_group) {
    reduce = host.communicator(mesh.shard, 1, "shard (reduce-scatter)");
    if (two_meshes) second_reduce = host.communicator(second, 1, "second mesh (reduce-scatter)");
  }
  to_run_.resize(plan.states.size());
  in_forward_.assign(plan.states.size(), false);
  in_backward_.assign(plan.states.size(), false);
  position_.assign(model.params.size(), 0);
  ignored_grad_.assign(model.params.size(), {});
  for (const Group& g : plan.groups)
    for (uint32_t i = 0; i < g.params.size(); ++i) position_[g.params[i].id.v] = i;
  groups_.resize(plan.groups.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    ParamGroup& g = groups_[i];
    g.plan = &plan.groups[i];
    g.id = {static_cast<uint32_t>(i)};
    g.state = plan.groups[i].state;
    g.comm = g.plan->second_mesh ? second_comm : shard_comm_;
    g.reduce_comm = g.plan->second_mesh ? second_reduce : reduce;
    const GroupId second_group = plan.states[g.state].second_group;
    g.last = !second_group.valid() || second_group == g.id;
    for (const ShardedParam& q : g.plan->params) g.mixed = g.mixed || q.kept;
    g.mixed = g.mixed && !std::all_of(g.plan->params.begin(), g.plan->params.end(),
                                      [](const ShardedParam& q) { return q.kept; });
    define(g);
  }
}

void Fsdp2::define_gather(ParamGroup& g, Gather& x, CommId comm, bool from_post_forward) {
  const Group& p = *g.plan;
  const int64_t o = bytes_of(stored_);
  const auto element = [&](const ShardedParam& q) {
    return bytes_of(compute_dtype(q, training_.precision));
  };
  // Of a rank's input: all of it, and what is cast. Where types differ the copies are of bytes.
  const auto input = [&](const ShardedParam& q) { return q.shard * p.ranks / x.ranks; };
  Bytes bytes = 0, cast_numel = 0;
  ForeachLaunches copies(host_.behaviour(), 2), casts(host_.behaviour(), 2);
  for (const ShardedParam& q : p.params) {
    bytes += input(q) * element(q);
    copies.add(input(q) * (g.mixed ? element(q) : 1));
    if (q.kept) continue;
    cast_numel += input(q);
    casts.add(input(q));
  }
  const int64_t e = bytes_of(compute_);
  // Flat buffer, where a parameter dtype is set that is not the stored one: the cast of every shard,
  // or a copy of the post-forward shards. Offloaded shards are brought and cast one by one.
  const bool flat = compute_ != stored_ && !offloads() && cast_numel > 0;
  if (flat) {
    const int64_t from = from_post_forward ? e : o;
    x.flat = static_cast<size_t>(casts.count());
    for (size_t i = 0; i < x.flat; ++i)
      x.copy_in.push_back(host_.work(
          kernel_work("all_gather_cast", KernelClass::foreach_op,
                      (from + e) * cast_numel / static_cast<int64_t>(x.flat), compute_, g.id)));
    x.flat_buffer = host_.buffer(cast_numel * e, kCopyIn, Category::all_gather_buffers, g.id);
  }
  if (offloads() && !from_post_forward)
    for (const ShardedParam& q : p.params) {
      Gather::Upload& u = x.uploads.emplace_back();
      u.copy = host_.work(copy_work(WorkKind::CopyH2D, input(q) * o, g.id, "upload_shard"));
      u.shard = host_.buffer(input(q) * o, kCopyIn, Category::all_gather_buffers, g.id);
      if (element(q) == o && compute_dtype(q, training_.precision) == stored_) continue;
      u.cast = host_.work(
          kernel_work("cast", KernelClass::pointwise, (o + e) * input(q), compute_, g.id));
      u.narrow = host_.buffer(input(q) * e, kCopyIn, Category::all_gather_buffers, g.id);
    }
  const int64_t n = copies.count();
  for (int64_t i = 0; i < n; ++i)
    x.copy_in.push_back(host_.work(
        kernel_work("all_gather_copy_in", KernelClass::foreach_op, 2 * bytes / n, compute_, g.id)));
  const Bytes whole = bytes * x.ranks;
  x.gather = host_.work(collective_work(WorkKind::AllGather, whole, compute_, comm, g.id,
                                        ReduceOp::none, "all_gather"));
  host_.schedule().works[x.gather.v].tensors = static_cast<uint32_t>(p.params.size());
  const Bytes table = copy_out_table(p, x.ranks, x.ranks, training_.precision, sms_);
  x.table = host_.work(copy_work(WorkKind::CopyH2D, table, g.id, "copy_out_table"));
  x.table_buffer = host_.buffer(table, kCompute, Category::all_gather_buffers, g.id);
  x.copy_out =
      host_.work(kernel_work("copy_out", KernelClass::copy_out, 2 * whole, compute_, g.id));
  x.output = host_.buffer(whole, kCopyIn, Category::all_gather_buffers, g.id);
}

// The same with its buffers on the compute stream: explicit and asynchronous unshards run there.
std::unique_ptr<Fsdp2::Gather> Fsdp2::on_compute(const Gather& x) {
  auto y = std::make_unique<Gather>(x);
  const auto move = [&](BufferId& b) {
    if (!b.valid()) return;
    const Buffer old = host_.schedule().buffers[b.v];
    b = host_.buffer(old.bytes, kCompute, old.category, old.group);
  };
  move(y->flat_buffer);
  move(y->output);
  for (Gather::Upload& u : y->uploads) {
    move(u.shard);
    move(u.narrow);
  }
  return y;
}

void Fsdp2::define(ParamGroup& g) {
  const Group& p = *g.plan;
  const int64_t o = bytes_of(stored_);
  const auto element = [&](const ShardedParam& q) {
    return bytes_of(compute_dtype(q, training_.precision));
  };
  const int64_t ranks = p.ranks;
  const auto n = static_cast<uint32_t>(p.params.size());
  const ShardState& state = plan_.states[g.state];
  g.communicates = ranks > 1 || host_.behaviour().one_rank_communicates;
  g.grads.assign(n, {});
  g.unsynced.assign(n, {});
  g.has_grad.assign(n, false);
  g.sharded_grads.assign(n, {});
  g.pinned_grad.assign(n, 0);
  if (g.communicates) {
    g.whole.ranks = ranks;
    define_gather(g, g.whole, g.comm, false);
    g.gathered_other = host_.buffer(host_.schedule().buffers[g.whole.output.v].bytes, kCopyIn,
                                    Category::all_gather_buffers, g.id);
  }
  g.first_unsharded = host_.buffers();
  for (const ShardedParam& q : p.params)
    host_.buffer(q.shard * ranks * element(q), kCompute, Category::unsharded_parameters, g.id);
  for (uint32_t i = 0; i < n && g.communicates && ranks > 1; ++i) {
    const ShardedParam& q = p.params[i];
    if (q.dim == 0) continue;
    const Bytes bytes = q.numel * element(q);
    Reassembly& r = g.reassembly.emplace_back();
    r.position = i;
    r.piece = host_.buffer(bytes, kCompute, Category::all_gather_buffers, g.id);
    r.cat = host_.work(kernel_work("unshard_cat", KernelClass::cat, 2 * bytes,
                                   compute_dtype(q, training_.precision), g.id));
  }
  if (state.reshard == Reshard::Kind::to) {
    // A new mesh for each fully_shard call: two communicators, of which one is used.
    const int64_t m = state.reshard_ranks;
    host_.communicator(ranks / m, m, "post-forward (unused)");
    g.partial_mesh.ranks = m;
    define_gather(g, g.partial_mesh, host_.communicator(m, 1, "post-forward"), true);
    g.first_post_forward = host_.buffers();
    for (const ShardedParam& q : p.params)
      host_.buffer(q.shard * ranks / m * element(q), kCompute, Category::unsharded_parameters,
                   g.id);
    for (const ShardedParam& q : p.params)
      g.clone.push_back(host_.work(
          copy_work(WorkKind::CopyD2D, q.shard * ranks / m * element(q), g.id, "reshard_clone")));
  }
  if (!g.communicates) {
    for (const ShardedParam& q : p.params) {
      const bool casts = compute_dtype(q, training_.precision) != stored_;
      OneRank& one = g.one_rank.emplace_back();
      if (offloads()) {
        one.upload = host_.work(copy_work(WorkKind::CopyH2D, q.shard * o, g.id, "upload_shard"));
        one.shard = host_.buffer(q.shard * o, kCompute, Category::all_gather_buffers, g.id);
      }
      if (casts) {
        one.cast = host_.work(kernel_work("cast", KernelClass::pointwise,
                                          (o + element(q)) * q.shard, compute_, g.id));
        one.narrow =
            host_.buffer(q.shard * element(q), kCompute, Category::all_gather_buffers, g.id);
      }
      one.copy =
          host_.work(copy_work(WorkKind::CopyD2D, q.shard * element(q), g.id, "unshard_copy"));
    }
  }
}

// The reduction of the parameters that have a gradient now; laid out when it is first needed.
Fsdp2::Reduction& Fsdp2::reduction(ParamGroup& g) {
  std::vector<bool> of(g.grads.size());
  std::vector<DType> types(g.grads.size(), DType::fp32);
  for (size_t i = 0; i < of.size(); ++i) {
    of[i] = g.grads[i].valid();
    if (of[i]) types[i] = g.grads[i].type;
  }
  for (const auto& x : g.reductions)
    if (x->of == of && x->types == types) return *x;
  g.reductions.push_back(std::make_unique<Reduction>());
  Reduction& x = *g.reductions.back();
  x.of = of;
  x.types = types;
  const Group& p = *g.plan;
  const ShardState& state = plan_.states[g.state];
  const Behaviour& behaviour = host_.behaviour();
  const int64_t o = bytes_of(stored_), r = bytes_of(reduce_);
  const int64_t ranks = p.ranks;
  Group with_grad = p;
  with_grad.params.clear();
  with_grad.shard = 0;
  for (size_t i = 0; i < of.size(); ++i)
    if (of[i]) {
      with_grad.params.push_back(p.params[i]);
      with_grad.shard += p.params[i].shard;
    }
  const int64_t shard = with_grad.shard;
  // Of the gradients: the type of the first, and whether there are others.
  const size_t first = static_cast<size_t>(std::find(of.begin(), of.end(), true) - of.begin());
  const DType type = first < of.size() ? types[first] : reduce_;
  const int64_t e = bytes_of(type);
  bool mixed = false;
  for (size_t i = 0; i < of.size(); ++i) mixed = mixed || (of[i] && types[i] != type);
  const Bytes input = shard * ranks * r, output = shard * r;
  x.input_bytes = input;
  if (!mixed && type != reduce_ && !(type == DType::bf16 && reduce_ == DType::fp32)) {
    // chunk_cat widens bf16 to fp32 only: other gradients are padded and cast into place one by one.
    for (const ShardedParam& q : with_grad.params) {
      x.cast_in.push_back(host_.work(
          kernel_work("cast", KernelClass::pointwise, (e + r) * q.shard * ranks, reduce_, g.id)));
      x.pad_in.push_back(
          host_.work(copy_work(behaviour.zeros_by_kernel ? WorkKind::Kernel : WorkKind::Memset,
                               q.shard * ranks * e, g.id, "pad_gradient")));
      x.pad_in.push_back(
          host_.work(copy_work(WorkKind::CopyD2D, q.numel * e, g.id, "pad_gradient")));
      x.padded_grads.push_back(BufferId{});
      if (q.shard * ranks != q.numel)
        x.padded_grads.back() =
            host_.buffer(q.shard * ranks * e, kCompute, Category::reduce_scatter_buffers, g.id);
    }
  }
  const Bytes table = chunk_cat_table(with_grad, r);
  x.table = host_.buffer(table, kCompute, Category::reduce_scatter_buffers, g.id);
  x.table_copy = host_.work(copy_work(WorkKind::CopyH2D, table, g.id, "chunk_cat_table"));
  if (mixed) {
    // One kernel for each type, from one table of two words less (seen: 6592 B and 4248 B).
    x.mixed_table = host_.buffer(table - 16, kCompute, Category::reduce_scatter_buffers, g.id);
    x.mixed_table_copy =
        host_.work(copy_work(WorkKind::CopyH2D, table - 16, g.id, "chunk_cat_table"));
    x.second_chunk_cat =
        host_.work(kernel_work("chunk_cat", KernelClass::chunk_cat, 0, reduce_, g.id));
  }
  x.chunk_cat = host_.work(
      kernel_work("chunk_cat", KernelClass::chunk_cat, input + shard * ranks * e, reduce_, g.id));
  const DivideFactors divide = divide_factors(
      reduce_, ranks * plan_.mesh.replicate,
      behaviour.divide_factor_all_reduces ? state.divide_factor : 0, state.force_sum);
  const bool divides = divide.pre != 1 || divide.post != 1;
  if (divide.pre != 1)
    x.pre_divide = host_.work(kernel_work("div", KernelClass::pointwise, 2 * input, reduce_, g.id));
  const bool custom = state.divide_factor > 0;
  const bool premultiplies =
      custom && (!behaviour.divide_factor_all_reduces ||
                 (!divides && state.divide_factor != static_cast<double>(ranks)));
  const ReduceOp scatter_op = premultiplies ? ReduceOp::premul_sum
                              : divides     ? ReduceOp::sum
                                            : ReduceOp::avg;
  x.reduce_scatter = host_.work(collective_work(WorkKind::ReduceScatter, input, reduce_,
                                                g.reduce_comm, g.id, scatter_op, "reduce_scatter"));
  x.copy = host_.work(copy_work(WorkKind::CopyD2D, input, g.id, "reduce_copy"));
  if (hsdp()) {
    x.add_partial =
        host_.work(kernel_work("add", KernelClass::pointwise, 3 * output, reduce_, g.id));
    x.all_reduce = host_.work(collective_work(
        WorkKind::AllReduce, output, reduce_, replicate_comm_, g.id,
        divides || (custom && behaviour.divide_factor_all_reduces) ? ReduceOp::sum : ReduceOp::avg,
        "all_reduce"));
    x.partial = host_.buffer(output, kReduceScatter, Category::reduce_scatter_buffers, g.id);
  }
  if (divide.post != 1)
    x.post_divide =
        host_.work(kernel_work("div", KernelClass::pointwise, 2 * output, reduce_, g.id));
  x.output = host_.buffer(output, kReduceScatter, Category::reduce_scatter_buffers, g.id);
  if (reduce_ != stored_)
    x.cast_grad =
        host_.work(kernel_work("cast", KernelClass::pointwise, (r + o) * shard, stored_, g.id));
  const StreamId pool = reduce_ != stored_ && hsdp() ? kAllReduce : kReduceScatter;
  for (BufferId& b : x.sharded_grad) b = host_.buffer(shard * o, pool, Category::gradients, g.id);
  for (const ShardedParam& q : with_grad.params)
    if (q.local > 0)
      x.add_grad.push_back(
          host_.work(kernel_work("add", KernelClass::pointwise, 3 * o * q.local, stored_, g.id)));
  define_each(g, x);
  return x;
}

void Fsdp2::define_each(ParamGroup& g, Reduction& x) {
  const Group& p = *g.plan;
  const int64_t o = bytes_of(stored_);
  x.each.resize(p.params.size());
  for (size_t i = 0; i < p.params.size(); ++i) {
    if (!x.of[i]) continue;
    const ShardedParam& q = p.params[i];
    Reduction::Each& each = x.each[i];
    if (q.dim > 0 && p.ranks > 1) {
      const DType t = x.types[i];
      const Bytes bytes = q.numel * bytes_of(t);
      each.cat = host_.buffer(bytes, kCompute, Category::unsharded_gradients, g.id);
      each.cat_work = host_.work(kernel_work("gradient_cat", KernelClass::cat, 2 * bytes, t, g.id));
    }
    if (q.local == 0) continue;
    if (offloads()) {
      each.to_host =
          host_.work(copy_work(WorkKind::CopyD2H, q.local * o, g.id, "offload_gradient"));
      HostWork sum, update;
      sum.name = "CPU gradient sum";
      add_passes(sum, kHostSum, q.local, stored_);
      each.sum_on_host = host_.host_work(sum);
      if (!training_.optimizer.in_backward) continue;
      update.name = "CPU optimizer";
      add_passes(update, optimizer_passes(training_.optimizer), q.local, stored_);
      each.update_on_host = host_.host_work(update);
    } else if (training_.optimizer.in_backward)
      each.update = host_.work(
          kernel_work("foreach_add", KernelClass::foreach_op, 3 * q.local * o, stored_, g.id));
  }
}

}  // namespace shardsim
