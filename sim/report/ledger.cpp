#include "sim/report/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "sim/base/error.h"
#include "sim/cost/host_work.h"
#include "sim/plan/plan_fsdp1.h"
#include "sim/report/step_report.h"

namespace shardsim {

namespace {

using ByCategory = std::array<Bytes, kCategories>;

size_t at(Category c) { return static_cast<size_t>(c); }

// What lives at one moment: as asked for, and in blocks of 512 bytes.
struct Held {
  ByCategory asked{}, blocks{};
  std::vector<Bytes> gathered;  // asked for unsharded_parameters, by group
  Bytes all() const {
    Bytes sum = 0;
    for (Bytes b : blocks) sum += b;
    return sum;
  }
};

class Walk {
 public:
  Walk(const Schedule& schedule, size_t groups) : schedule_(schedule) {
    now_.gathered.resize(groups);
  }

  // Played up to the peak, or to the end of the last backward.
  Held peak(const Trace& trace) {
    for (uint32_t s = 0; s < schedule_.segments.size() && s <= trace.peak_segment; ++s) {
      const Segment& segment = schedule_.segments[s];
      const uint32_t end = s == trace.peak_segment ? trace.peak_instr + 1 : segment.end;
      for (uint32_t i = segment.begin; i < end; ++i) step(schedule_.code[i], segment);
    }
    return now_;
  }
  Held end_of_backward() {
    Held out;
    schedule_.for_each([&](const Instr& in, const Segment& segment) {
      step(in, segment);
      if (in.kind == Kind::Mark && schedule_.marks[in.a].name.ends_with("after_backward"))
        out = now_;
    });
    return out;
  }

 private:
  void step(const Instr& in, const Segment& segment) {
    const int change = walk_.change(in);
    if (change == 0) return;
    const Buffer& b = schedule_.buffers[segment.buffer(in).v];
    now_.asked[at(b.category)] += change * b.bytes;
    now_.blocks[at(b.category)] += change * round_block(b.bytes);
    if (b.category == Category::unsharded_parameters && b.group.v < now_.gathered.size())
      now_.gathered[b.group.v] += change * b.bytes;
  }

  const Schedule& schedule_;
  LiveWalk walk_;
  Held now_;
};

// A value that is changed one reason at a time.
class Chain {
 public:
  Chain(LedgerEntry& entry, Bytes value) : entry_(entry), value_(value) {}
  void to(const std::string& what, Bytes value) {
    add(entry_, what, value - value_);
    value_ = value;
  }
  Bytes value() const { return value_; }
  static void add(LedgerEntry& entry, const std::string& what, Bytes bytes) {
    if (bytes == 0) return;
    for (LedgerReason& r : entry.reasons)
      if (r.what == what) {
        r.bytes += bytes;
        return;
      }
    entry.reasons.push_back({what, bytes});
  }

 private:
  LedgerEntry& entry_;
  Bytes value_;
};

void finish(LedgerEntry& entry) {
  std::erase_if(entry.reasons, [](const LedgerReason& r) { return r.bytes == 0; });
  std::stable_sort(entry.reasons.begin(), entry.reasons.end(), [](const auto& a, const auto& b) {
    return std::abs(a.bytes) > std::abs(b.bytes);
  });
  Bytes sum = entry.expected;
  for (const LedgerReason& r : entry.reasons) sum += r.bytes;
  SHARDSIM_ASSERT(sum == entry.simulated, "the reasons of a ledger add up to the difference");
}

// Elements that are cut over like numbers of ranks: a share is of their sum, so that it is rounded
// once.
class Shares {
 public:
  void add(int64_t ranks, int64_t elements) { by_ranks_[ranks] += elements; }
  Bytes bytes(int64_t each) const {
    Bytes sum = 0;
    for (const auto& [ranks, elements] : by_ranks_) sum += share(elements * each, ranks);
    return sum;
  }

 private:
  std::map<int64_t, int64_t> by_ranks_;
};

// A group with what of it is trained.
struct Cut {
  int64_t ranks = 1;
  int64_t numel = 0, trained = 0;    // elements
  int64_t alignment = 0, world = 0;  // padding inside FSDP1's flat parameter
  int64_t own = 0, own_trained = 0;  // the parameters' own padding; FSDP1: the last chunks'
  int64_t local = 0;                 // elements of rank 0 that the optimizer steps
  int64_t stepped = 0;               // tensors of those
  bool root = false;
};

class Accountant {
 public:
  Accountant(const Scenario& scenario, const Model& model, const Plan& plan,
             const Schedule& schedule, const Trace& trace)
      : training_(scenario.training),
        model_(model),
        plan_(plan),
        schedule_(schedule),
        trace_(trace),
        f_(formula_of(scenario.training, model.numel())),
        stored_(bytes_of(scenario.training.precision.storage)) {
    for (const Group& g : plan.groups) cuts_.push_back(cut(g));
    for (size_t i = 0; i < model.params.size(); ++i) {
      const Param& p = model.params[i];
      if (p.alias.valid()) continue;
      if (p.frozen) frozen_ += p.shape.numel();
      if (plan.group_of_param[i] < 0) whole_ += p.shape.numel();
    }
  }

  LedgerEntry resident() {
    const Held held = fold(Walk(schedule_, plan_.groups.size()).end_of_backward());
    LedgerEntry e{
        "resident", std::string(resident_formula(f_.scheme)), f_.resident(), held.all(), {}};
    parameters(e, held, false);
    gradients(e, held, false);
    optimizer(e, held);
    for (int c = 0; c < kCategories; ++c)
      if (!is_state(static_cast<Category>(c)))
        Chain::add(e, beside(static_cast<Category>(c)), held.blocks[static_cast<size_t>(c)]);
    finish(e);
    return e;
  }

  LedgerEntry peak() {
    const Held held = fold(Walk(schedule_, plan_.groups.size()).peak(trace_));
    SHARDSIM_ASSERT(held.all() == trace_.peak, "a walk up to the peak finds its bytes");
    LedgerEntry e{"worst peak", std::string(peak_formula(f_.scheme)), f_.peak(), trace_.peak, {}};
    parameters(e, held, true);
    gradients(e, held, true);
    optimizer(e, held);
    gathered(e, held);
    for (int c = 0; c < kCategories; ++c) {
      const auto category = static_cast<Category>(c);
      if (!is_state(category) && category != Category::unsharded_parameters)
        Chain::add(e, beside(category), held.blocks[static_cast<size_t>(c)]);
    }
    finish(e);
    return e;
  }

  LedgerEntry communication() {
    LedgerEntry e{
        "communication", std::string(communication_formula(f_.scheme)), f_.communication(), 0, {}};
    if (fsdp()) {
      collect(e);
      if (f_.shards_params()) gathers(e);
      reductions(e, f_.shards_params() ? WorkKind::ReduceScatter : WorkKind::AllReduce);
    } else {
      buckets(e);
    }
    // A ring's share is rounded once a collective, a formula's once in all.
    Bytes rest = e.simulated - e.expected;
    int64_t collectives = 0;
    for (const LedgerReason& r : e.reasons) rest -= r.bytes;
    for (const Moved& m : moved_in_last_step(schedule_)) collectives += m.count;
    if (std::abs(rest) <= collectives) Chain::add(e, "shares rounded to whole bytes", rest);
    finish(e);
    return e;
  }

  const StateFormula& formula() const { return f_; }

 private:
  static bool is_state(Category c) {
    return c == Category::parameters || c == Category::gradients || c == Category::optimizer_state;
  }
  // Where gradients are whole on every rank, they are the formula's, whatever holds them.
  Held fold(Held held) const {
    if (f_.shards_grads()) return held;
    for (ByCategory* of : {&held.asked, &held.blocks}) {
      (*of)[at(Category::gradients)] += (*of)[at(Category::unsharded_gradients)];
      (*of)[at(Category::unsharded_gradients)] = 0;
      // DDP's gradients may be views of its buckets.
      if (!reduces_buckets(training_.strategy) || !training_.ddp.gradient_as_bucket_view) continue;
      (*of)[at(Category::gradients)] += (*of)[at(Category::buckets)];
      (*of)[at(Category::buckets)] = 0;
    }
    return held;
  }
  static std::string beside(Category c) {
    switch (c) {
      case Category::unsharded_parameters: return "parameters that are gathered";
      case Category::unsharded_gradients: return "unsharded gradients";
      case Category::all_gather_buffers: return "all-gather buffers";
      case Category::reduce_scatter_buffers: return "reduction buffers";
      case Category::activations: return "activations, the batch and the loss";
      case Category::recomputed_activations: return "recomputed activations";
      case Category::backward: return "gradients of activations";
      case Category::temporary: return "temporaries of operators";
      case Category::workspace: return "cuBLAS workspace";
      case Category::optimizer: return "temporaries of the optimizer";
      case Category::buckets: return "gradient buckets";
      default: return std::string(name_of(c));
    }
  }
  std::string type_name() const { return std::string(name_of(compute_dtype(training_.precision))); }
  std::string stored_name() const { return std::string(name_of(training_.precision.storage)); }
  bool offloads() const { return shardsim::offloads(training_); }
  // Collectives are one unit's each, so that a unit's can be counted.
  bool fsdp() const {
    return training_.strategy == Strategy::fsdp1 || training_.strategy == Strategy::fsdp2;
  }
  bool trains(const ShardedParam& q) const { return !model_.params[q.id.v].frozen; }

  Cut cut(const Group& g) const {
    Cut c;
    c.ranks = g.ranks;
    c.numel = g.numel;
    c.root = plan_.states[g.state].root;
    const bool flat = training_.strategy == Strategy::fsdp1;
    bool any = false;
    int64_t end = 0;
    for (const ShardedParam& q : g.params) {
      if (trains(q)) {
        any = true;
        c.trained += q.numel;
        if (!flat) c.own_trained += q.shard * g.ranks - q.numel;
        c.local += q.local;
        ++c.stepped;
      }
      if (flat) {
        c.alignment += q.offset - end;
        end = q.offset + q.numel;
      } else {
        c.own += q.shard * g.ranks - q.numel;
      }
    }
    if (!flat) return c;
    // A flat parameter is reduced whole, and stepped whole where it is what the optimizer sees.
    c.world = g.flat - end;
    c.own = g.padded() - g.flat;
    if (any) c.trained = c.numel;
    if (any && !training_.fsdp1.use_orig_params) {
      c.local = g.shard;
      c.stepped = 1;
    }
    c.own_trained = any ? c.alignment + c.world + c.own : 0;
    return c;
  }

  template <class F>
  Shares shares(F&& elements) const {
    Shares s;
    for (const Cut& c : cuts_) s.add(c.ranks, elements(c));
    return s;
  }

  void rounding(Chain& chain, const Held& held, Category c) const {
    chain.to("blocks of 512 bytes", held.blocks[at(c)]);
  }

  // The model is being wrapped at the peak.
  bool before_first_step() const {
    return trace_.peak_mark < trace_.marks.size() &&
           schedule_.marks[trace_.marks[trace_.peak_mark].mark].step < 0;
  }

  void parameters(LedgerEntry& e, const Held& held, bool at_peak) const {
    Chain chain(e, f_.parameters());
    if (is_zero(training_.strategy)) {
      int64_t all = whole_, own = 0;
      for (const Group& g : plan_.groups) {
        all += f_.shards_params() ? g.shard : g.flat;
        own += g.shard;
      }
      const Bytes there = held.asked[at(Category::parameters)];
      if (at_peak && before_first_step() && there >= 4 * f_.params &&
          there != all * f_.bytes + 4 * own) {
        chain.to("the whole model in fp32, before DeepSpeed casts and cuts it", 4 * f_.params);
        chain.to(there > 4 * f_.params ? "parameters of which the cast copy is there beside"
                                       : "parameters that are cast by then",
                 there);
        rounding(chain, held, Category::parameters);
        return;
      }
      chain.to("padding of parameters", all * f_.bytes);
      chain.to("fp32 master weights of this rank's part", all * f_.bytes + 4 * own);
      chain.to("parameters held otherwise", there);
      rounding(chain, held, Category::parameters);
      return;
    }
    const int64_t n = f_.shards_params() ? f_.ranks : 1;
    chain.to(fmt::format("parameters are stored in {}, not {}", stored_name(), type_name()),
             share(f_.params * stored_, n));
    Shares s = shares([](const Cut& c) { return c.numel; });
    s.add(1, whole_);
    chain.to("parameters that are sharded over fewer ranks or not at all", s.bytes(stored_));
    for (const auto& [what, part] :
         {std::pair{"alignment padding of parameters", &Cut::alignment},
          std::pair{"world padding of parameters", &Cut::world},
          std::pair{training_.strategy == Strategy::fsdp1 ? "padding of the last chunks"
                                                          : "padding of each parameter's shards",
                    &Cut::own}}) {
      for (const Cut& c : cuts_) s.add(c.ranks, c.*part);
      chain.to(what, s.bytes(stored_));
    }
    chain.to(offloads() ? "parameters are on the host" : "parameters held otherwise",
             held.asked[at(Category::parameters)]);
    rounding(chain, held, Category::parameters);
  }

  static std::string at_the_peak(const Chain& chain, const Held& held) {
    return held.asked[at(Category::gradients)] < chain.value()
               ? "gradients that are not there at the peak"
               : "gradients that are there at the peak and go";
  }
  void gradients(LedgerEntry& e, const Held& held, bool at_peak) const {
    Chain chain(e, f_.gradients());
    const int64_t n = f_.shards_grads() ? f_.ranks : 1;
    chain.to("frozen parameters have no gradient", share((f_.params - frozen_) * f_.bytes, n));
    if (is_zero(training_.strategy)) {
      int64_t kept = 0;
      for (const Group& g : plan_.groups) {
        if (f_.shards_params())
          kept += g.shard;
        else
          for (const ShardedParam& q : g.params)
            if (q.local > 0) kept += q.numel;
      }
      if (!at_peak)
        chain.to(f_.shards_params()  ? "padding of gradients"
                 : f_.shards_grads() ? "gradients that straddle the part's ends are kept whole"
                                     : "gradients of other ranks' parts go once they are reduced",
                 kept * f_.bytes);
      chain.to(at_peak ? at_the_peak(chain, held) : std::string("gradients held otherwise"),
               held.asked[at(Category::gradients)]);
      rounding(chain, held, Category::gradients);
      return;
    }
    chain.to(fmt::format("gradients are stored in {}, not {}", stored_name(), type_name()),
             share((f_.params - frozen_) * stored_, n));
    chain.to(training_.strategy == Strategy::fsdp1
                 ? "a flat parameter's gradient has its frozen parts too"
                 : "parameters that are sharded over fewer ranks or not at all",
             shares([](const Cut& c) { return c.trained; }).bytes(stored_));
    chain.to("padding of gradients",
             shares([](const Cut& c) { return c.trained + c.own_trained; }).bytes(stored_));
    chain.to(offloads()                        ? "gradients are on the host"
             : at_peak                         ? at_the_peak(chain, held)
             : training_.optimizer.in_backward ? "gradients that the optimizer took in backward"
                                               : "gradients held otherwise",
             held.asked[at(Category::gradients)]);
    rounding(chain, held, Category::gradients);
  }

  void optimizer(LedgerEntry& e, const Held& held) const {
    const Optimizer& o = training_.optimizer;
    Chain chain(e, f_.optimizer());
    const int64_t n = f_.shards_optimizer() ? f_.ranks : 1;
    const bool adam = o.name == Optimizer::Name::adamw || o.name == Optimizer::Name::adam;
    const int64_t states = adam                                           ? (o.amsgrad ? 3 : 2)
                           : o.name == Optimizer::Name::sgd && o.momentum ? 1
                                                                          : 0;
    if (states > 0 && !offloads() && held.asked[at(Category::optimizer_state)] == 0) {
      chain.to("optimizer state that is not there yet", 0);
      return;
    }
    if (is_zero(training_.strategy)) {
      int64_t own = 0;
      for (const Group& g : plan_.groups) own += g.shard;
      chain.to("the optimizer keeps other state than AdamW's two moments",
               share(states * 4 * f_.params, n));
      chain.to("frozen parameters have no optimizer state",
               share(states * 4 * (f_.params - frozen_), n));
      chain.to("padding of optimizer state", states * 4 * own);
      chain.to("step counts and other state of the optimizer",
               held.asked[at(Category::optimizer_state)]);
      rounding(chain, held, Category::optimizer_state);
      return;
    }
    if (adam)
      chain.to(fmt::format("the moments are in {}, not fp32", stored_name()),
               share(2 * stored_ * f_.params, n));
    chain.to("the optimizer keeps other state than AdamW's two moments",
             share(states * stored_ * f_.params, n));
    chain.to("frozen parameters have no optimizer state",
             share(states * stored_ * (f_.params - frozen_), n));
    if (f_.scheme == Scheme::zero1) {
      chain.to("rank 0 steps whole parameters, more or fewer than its share",
               held.asked[at(Category::optimizer_state)]);
      rounding(chain, held, Category::optimizer_state);
      return;
    }
    int64_t local = 0, tensors = 0;
    for (const Cut& c : cuts_) {
      local += c.local;
      tensors += c.stepped;
    }
    chain.to("rank 0 steps more or fewer than its share of the elements", local * states * stored_);
    if (adam && o.implementation == Optimizer::Implementation::fused)
      chain.to("step counts of the fused optimizer", local * states * stored_ + 4 * tensors);
    chain.to(offloads() ? "optimizer state is on the host" : "optimizer state held otherwise",
             held.asked[at(Category::optimizer_state)]);
    rounding(chain, held, Category::optimizer_state);
  }

  // The whole copy of the formula's peak beside what is gathered then.
  void gathered(LedgerEntry& e, const Held& held) const {
    Chain chain(e, f_.whole_copy());
    // Resharded to a part of the ranks, a group is there in part.
    Bytes there = 0;
    for (size_t g = 0; g < cuts_.size(); ++g)
      there += std::min(held.gathered[g], cuts_[g].numel * f_.bytes);
    if (f_.shards_params())
      chain.to(there == 0 ? "no group is gathered at the peak"
                          : "only some groups are gathered at the peak",
               there);
    chain.to(f_.shards_params() ? "padding and other types of what is gathered"
                                : "copies of the parameters",
             held.asked[at(Category::unsharded_parameters)]);
    rounding(chain, held, Category::unsharded_parameters);
  }

  // What the last step's collectives move, by group; what belongs to no walk is a reason at once.
  struct Count {
    int64_t launches = 0;
    Bytes over_all = 0;  // what a rank would send if every ring had the group's ranks
    Bytes moved = 0;
  };
  void collect(LedgerEntry& e) {
    gathers_.assign(cuts_.size(), {});
    reductions_.assign(cuts_.size(), {});
    const WorkKind reduction = f_.shards_params() ? WorkKind::ReduceScatter : WorkKind::AllReduce;
    schedule_.for_each_of_last_step([&](const Instr& in, const Segment&) {
      if (in.kind != Kind::Launch) return;
      const Work& w = schedule_.works[in.a];
      if (!is_collective(w.kind)) return;
      const Bytes moved = ring_bytes(w.kind, w.bytes, schedule_.comms[w.comm.v].size);
      e.simulated += moved;
      Count* count = w.group.v >= cuts_.size()                             ? nullptr
                     : w.kind == WorkKind::AllGather && f_.shards_params() ? &gathers_[w.group.v]
                     : w.kind == reduction                                 ? &reductions_[w.group.v]
                                                                           : nullptr;
      if (count == nullptr) {
        const bool replicas = w.kind == WorkKind::AllReduce && w.group.valid();
        Chain::add(e,
                   replicas ? fmt::format("gradients are all-reduced over {} replicas",
                                          schedule_.comms[w.comm.v].size)
                            : fmt::format("other: {} {}", name_of(w.kind), w.name),
                   moved);
        return;
      }
      ++count->launches;
      count->over_all += ring_bytes(w.kind, w.bytes, cuts_[w.group.v].ranks);
      count->moved += moved;
    });
  }

  // Elements x bytes, as a rank sends them; of groups on like rings, rounded once.
  template <class F>
  Bytes sent(int64_t times, F&& bytes) const {
    std::map<int64_t, Bytes> by_ranks;
    for (size_t g = 0; g < cuts_.size(); ++g)
      by_ranks[ring(cuts_[g])] += times * bytes(g, cuts_[g]);
    Bytes sum = 0;
    for (const auto& [ranks, all] : by_ranks) sum += all - share(all, ranks);
    return sum;
  }
  int64_t ring(const Cut& c) const { return f_.shards_params() ? c.ranks : f_.ranks; }

  void gathers(LedgerEntry& e) const {
    const int64_t each = f_.passes() - 1, passes = training_.grad_accum, b = f_.bytes;
    const Bytes all = each * f_.params * b;
    Chain chain(e, all - share(all, f_.ranks));
    chain.to("parameters that are sharded over fewer ranks or not at all",
             sent(each, [&](size_t, const Cut& c) { return c.numel * b; }));
    chain.to(fmt::format("{} passes a step gather each anew", passes),
             sent(each * passes, [&](size_t, const Cut& c) { return c.numel * b; }));
    const int64_t expected = each * passes;
    chain.to(counted(true, expected), sent(1, [&](size_t g, const Cut& c) {
               return (c.root ? gathers_[g].launches : expected) * c.numel * b;
             }));
    chain.to(counted(false, expected),
             sent(1, [&](size_t g, const Cut& c) { return gathers_[g].launches * c.numel * b; }));
    chain.to("padding that is gathered", sent(1, [&](size_t g, const Cut&) {
               return gathers_[g].launches * plan_.groups[g].padded() * b;
             }));
    Bytes over_all = 0, moved = 0;
    for (const Count& c : gathers_) {
      over_all += c.over_all;
      moved += c.moved;
    }
    chain.to("parameters gathered in another type", over_all);
    chain.to("gathers over a part of the ranks", moved);
  }

  // Why groups are gathered more or less often than the formula says.
  std::string counted(bool root, int64_t expected) const {
    int64_t more = 0;
    for (size_t g = 0; g < cuts_.size(); ++g)
      if (cuts_[g].root == root) more += gathers_[g].launches - expected;
    if (root)
      return more < 0 ? "the root's parameters are not freed after forward"
                      : "the root's parameters are gathered again";
    return more < 0 ? "groups that stay gathered" : "groups that are gathered again";
  }

  // Where gradients are accumulated without communication, fewer passes reduce than there are.
  std::string reducing(int64_t times) const {
    return times == training_.grad_accum
               ? fmt::format("{} passes a step reduce anew", times)
               : fmt::format("{} of {} passes a step reduce", times, training_.grad_accum);
  }

  void reductions(LedgerEntry& e, WorkKind kind) const {
    const int64_t factor = kind == WorkKind::AllReduce ? 2 : 1, b = f_.bytes;
    const Bytes all = factor * f_.params * b;
    Chain chain(e, all - share(all, f_.ranks));
    chain.to("parameters that are sharded over fewer ranks or not at all",
             sent(factor, [&](size_t, const Cut& c) { return c.numel * b; }));
    chain.to("frozen parameters have no gradient",
             sent(factor, [&](size_t, const Cut& c) { return c.trained * b; }));
    int64_t most = 0;
    for (const Count& c : reductions_) most = std::max(most, c.launches);
    const int64_t times = std::clamp<int64_t>(most, 1, training_.grad_accum);
    chain.to(reducing(times),
             sent(factor * times, [&](size_t, const Cut& c) { return c.trained * b; }));
    chain.to("gradients that are not reduced in every pass",
             sent(factor,
                  [&](size_t g, const Cut& c) { return reductions_[g].launches * c.trained * b; }));
    chain.to("padding that is reduced", sent(factor, [&](size_t g, const Cut& c) {
               return reductions_[g].launches * (c.trained + c.own_trained) * b;
             }));
    Bytes moved = 0;
    for (const Count& c : reductions_) moved += c.moved;
    chain.to(fmt::format("gradients are reduced in {}, not {}", name_of(reduce_dtype(training_)),
                         type_name()),
             moved);
  }

  // Where buckets and prefetches cross the groups, elements are counted over all of them.
  struct Sum {
    int64_t elements = 0;
    Bytes as_formula = 0;  // if they were of the formula's type
    Bytes moved = 0;
  };
  void buckets(LedgerEntry& e) const {
    Sum gathered, reduced;
    schedule_.for_each_of_last_step([&](const Instr& in, const Segment&) {
      if (in.kind != Kind::Launch) return;
      const Work& w = schedule_.works[in.a];
      if (!is_collective(w.kind)) return;
      const int64_t ranks = schedule_.comms[w.comm.v].size;
      const Bytes moved = ring_bytes(w.kind, w.bytes, ranks);
      e.simulated += moved;
      const bool gather = w.kind == WorkKind::AllGather;
      Sum* sum = reduces_gradients(w)                              ? &reduced
                 : gather && f_.shards_params() && w.group.valid() ? &gathered
                                                                   : nullptr;
      if (sum == nullptr) {
        Chain::add(e,
                   gather || (w.kind == WorkKind::Broadcast && w.group.valid())
                       ? "parameters are sent around behind the optimizer"
                       : fmt::format("other: {} {}", name_of(w.kind), w.name),
                   moved);
        return;
      }
      const int64_t elements = w.bytes / bytes_of(w.dtype);
      sum->elements += elements;
      sum->as_formula += ring_bytes(w.kind, elements * f_.bytes, ranks);
      sum->moved += moved;
    });
    const auto ring = [&](Bytes all) { return all - share(all, f_.ranks); };
    const int64_t b = f_.bytes, passes = training_.grad_accum, trained = f_.params - frozen_;
    if (const int64_t each = f_.passes() - 1; f_.shards_params()) {
      Chain chain(e, ring(each * f_.params * b));
      chain.to(fmt::format("{} passes a step gather each anew", passes),
               ring(each * passes * f_.params * b));
      chain.to(gathered.elements < each * passes * f_.params
                   ? "parameters that are still there when they are used again, less padding"
                   : "padding that is gathered",
               gathered.as_formula);
      chain.to("parameters gathered in another type", gathered.moved);
    }
    const int64_t factor = f_.shards_params() ? 1 : 2;
    Chain chain(e, ring(factor * f_.params * b));
    chain.to("frozen parameters have no gradient", ring(factor * trained * b));
    const int64_t times =
        trained > 0 ? std::clamp<int64_t>(reduced.elements / trained, 1, passes) : 1;
    chain.to(reducing(times), ring(factor * times * trained * b));
    chain.to(reduced.elements < times * trained ? "gradients that are not reduced in every pass"
                                                : "padding that is reduced",
             ring(factor * reduced.elements * b));
    chain.to(f_.shards_params() ? "gradients that are all-reduced, not scattered"
                                : "gradients that are reduced to their owner, not all-reduced",
             reduced.as_formula);
    chain.to("gradients are reduced in another type", reduced.moved);
  }

  const Training& training_;
  const Model& model_;
  const Plan& plan_;
  const Schedule& schedule_;
  const Trace& trace_;
  const StateFormula f_;
  const int64_t stored_;
  std::vector<Cut> cuts_;
  std::vector<Count> gathers_, reductions_;
  int64_t frozen_ = 0, whole_ = 0;  // elements: frozen, in no group
};

}  // namespace

bool reduces_gradients(const Work& w) {
  // A bucket may cross groups; the other all-reduces without one (of norms, of flags) have names of
  // their own.
  return w.kind == WorkKind::ReduceScatter ||
         ((w.kind == WorkKind::AllReduce || w.kind == WorkKind::Reduce) &&
          (w.group.valid() || w.name == std::string_view("all_reduce")));
}

Bytes ring_bytes(WorkKind kind, Bytes bytes, int64_t ranks) {
  const Bytes all = kind == WorkKind::AllReduce ? 2 * bytes : bytes;
  return all - share(all, ranks);
}

std::array<Moved, static_cast<size_t>(WorkKind::Memset) + 1> moved_in_last_step(
    const Schedule& schedule) {
  std::array<Moved, static_cast<size_t>(WorkKind::Memset) + 1> out;
  schedule.for_each_of_last_step([&](const Instr& in, const Segment&) {
    if (in.kind != Kind::Launch) return;
    const Work& w = schedule.works[in.a];
    if (!is_collective(w.kind)) return;
    Moved& m = out[static_cast<size_t>(w.kind)];
    const Bytes bytes = ring_bytes(w.kind, w.bytes, schedule.comms[w.comm.v].size);
    ++m.count;
    m.bytes += bytes;
    m.elements += bytes / bytes_of(w.dtype);
  });
  return out;
}

Ledger make_ledger(const Scenario& scenario, const Model& model, const Plan& plan,
                   const Schedule& schedule, const Trace& trace) {
  Accountant accountant(scenario, model, plan, schedule, trace);
  Ledger out;
  out.name = scenario.name;
  out.strategy = name_of(scenario.training.strategy);
  out.type = name_of(compute_dtype(scenario.training.precision));
  out.formula = accountant.formula();
  out.replicas = scenario.training.mesh.world() / out.formula.ranks;
  out.resident = accountant.resident();
  out.peak = accountant.peak();
  out.communication = accountant.communication();
  if (trace.peak_mark < trace.marks.size())
    out.peak_phase = schedule.marks[trace.marks[trace.peak_mark].mark].name;
  const Cluster& c = scenario.cluster;
  out.deepspeed = {model.numel(), largest_layer(model), c.gpus_per_node, c.nodes};
  return out;
}

}  // namespace shardsim
