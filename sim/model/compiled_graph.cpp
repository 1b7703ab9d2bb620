#include "sim/model/compiled_graph.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/base/error.h"
#include "sim/model/op_writer.h"

namespace shardsim {

GraphWriter::Tensor GraphWriter::input(Bytes bytes, DType type, Owner owner) {
  Info t;
  t.bytes = bytes;
  t.type = type;
  t.owner = owner;
  t.input = true;
  tensors_.push_back(t);
  return static_cast<Tensor>(tensors_.size() - 1);
}

GraphWriter::Tensor GraphWriter::tensor(Bytes bytes, DType type) {
  Info t;
  t.bytes = bytes;
  t.type = type;
  t.recomputed = recomputes_;
  tensors_.push_back(t);
  return static_cast<Tensor>(tensors_.size() - 1);
}

GraphWriter::Call& GraphWriter::add(const Tensors& reads) {
  const int index = static_cast<int>(calls_.size());
  Call& c = calls_.emplace_back();
  c.reads = reads;
  for (Tensor t : reads) tensors_[t].last = index;
  return c;
}

void GraphWriter::kernel(const char* name, const Tensors& reads, std::vector<Write> writes,
                         Bytes besides) {
  const int index = static_cast<int>(calls_.size());
  Call& c = add(reads);
  Bytes moved = besides;
  for (Tensor t : reads) moved += tensors_[t].bytes;
  for (const Write& w : writes) {
    tensors_[w.tensor].made = index;
    moved += tensors_[w.tensor].bytes;
  }
  c.writes = std::move(writes);
  Writer(c.steps).kernel(name, KernelClass::fused, moved);
  c.steps.back().recomputed = recomputes_;
}

void GraphWriter::kernel_with_workspace(const char* name, const Tensors& reads,
                                        std::vector<Write> writes, Bytes besides, Bytes workspace,
                                        const std::vector<OpAction>& steps,
                                        const std::vector<Result>& made) {
  const int index = static_cast<int>(calls_.size());
  kernel(name, reads, std::move(writes), besides + workspace);
  Call& c = calls_.back();
  c.workspace = workspace;
  c.results = made;
  for (const Result& r : made) tensors_[r.tensor].made = index;
  c.steps.insert(c.steps.end(), steps.begin(), steps.end());
}

void GraphWriter::product(const char* name, DType type, int64_t m, int64_t n, int64_t k,
                          const Tensors& reads, Tensor out) {
  const int index = static_cast<int>(calls_.size());
  Call& c = add(reads);
  c.writes = {out};
  tensors_[out].made = index;
  Writer(c.steps).gemm(context_, type, name, m, n, k);
  for (OpAction& a : c.steps) a.recomputed = recomputes_;
}

void GraphWriter::library(const std::vector<OpAction>& steps, const Tensors& reads,
                          const std::vector<Result>& made, int nodes) {
  const int index = static_cast<int>(calls_.size());
  Call& c = add(reads);
  c.nodes = nodes;
  c.results = made;
  for (const Result& r : made) tensors_[r.tensor].made = index;
  for (const OpAction& a : steps) {
    // What autograd would let go early belongs to the graph.
    if (a.act == Act::release || a.act == Act::release_unpacked || a.act == Act::take_gradient ||
        a.act == Act::parameter_done || a.act == Act::free_unsaved)
      continue;
    c.steps.push_back(a);
    c.steps.back().recomputed = recomputes_;
  }
}

namespace {

// Inductor's estimate of what is live at each scheduler node (memory.py, estimate_peak_memory), with
// what reuse keeps alive added as it is decided.
struct Estimate {
  std::vector<Bytes> at;
  Bytes peak = 0;
  Bytes between(int from, int to) const {  // nodes from < n < to
    Bytes most = 0;
    for (int n = from + 1; n < to; ++n) most = std::max(most, at[static_cast<size_t>(n)]);
    return most;
  }
  void keep(int from, int to, Bytes bytes) {
    for (int n = from + 1; n < to; ++n) at[static_cast<size_t>(n)] += bytes;
  }
};

struct Dead {
  DType type;
  Bytes bytes;
  uint16_t slot;
  int node;
  size_t action;  // its free
};

}  // namespace

CompiledPass GraphWriter::finish(const Tensors& outputs, const Tensors& gradients) {
  for (Tensor t : outputs) tensors_[t].output = true;
  for (Tensor t : gradients) tensors_[t].output = true;
  CompiledPass pass;
  pass.slot.assign(tensors_.size(), UINT16_MAX);
  const auto new_slot = [&](CompiledPass::Made made) {
    pass.made.push_back(made);
    return static_cast<uint16_t>(pass.made.size() - 1);
  };
  for (size_t t = 0; t < tensors_.size() && tensors_[t].input; ++t)
    pass.slot[t] = new_slot(CompiledPass::Made::value);

  std::vector<int> first_node(calls_.size() + 1, 0);
  for (size_t c = 0; c < calls_.size(); ++c) first_node[c + 1] = first_node[c] + calls_[c].nodes;
  Estimate estimate;
  {
    const auto nodes = static_cast<size_t>(first_node.back());
    std::vector<Bytes> change(nodes + 1, 0);
    for (const Info& t : tensors_) {
      if (t.input && t.owner != Owner::saved) continue;
      if (!t.input && t.made < 0) continue;
      change[t.input ? 0 : static_cast<size_t>(first_node[static_cast<size_t>(t.made)])] += t.bytes;
      if (t.output) continue;
      const int last = std::max(t.last, t.made);
      if (last >= 0)
        change[static_cast<size_t>(first_node[static_cast<size_t>(last)]) + 1] -= t.bytes;
    }
    Bytes now = 0;
    for (size_t n = 0; n < nodes; ++n) {
      now += change[n];
      estimate.at.push_back(now);
      estimate.peak = std::max(estimate.peak, now);
    }
  }

  std::vector<Dead> dead;  // the latest last
  std::vector<bool> reused;
  const auto made_of = [&](Tensor t) {
    if (std::find(gradients.begin(), gradients.end(), t) != gradients.end())
      return CompiledPass::Made::gradient;
    return tensors_[t].recomputed ? CompiledPass::Made::recomputed : CompiledPass::Made::value;
  };
  const auto push = [&](Act act, uint16_t slot, Bytes bytes) {
    OpAction a;
    a.act = act;
    a.slot = slot;
    a.bytes = bytes;
    pass.actions.push_back(a);
    reused.push_back(false);
  };
  for (size_t c = 0; c < calls_.size(); ++c) {
    const Call& call = calls_[c];
    const int node = first_node[c];
    const auto ends_here = [&](Tensor t) {
      const Info& x = tensors_[t];
      return !x.output && x.last == static_cast<int>(c) && !(x.input && x.owner == Owner::caller);
    };
    Tensors taken;
    for (const Write& w : call.writes) {
      const Info& t = tensors_[w.tensor];
      const auto over = std::find_if(w.over.begin(), w.over.end(), [&](Tensor o) {
        return ends_here(o) && tensors_[o].bytes == t.bytes &&
               std::find(taken.begin(), taken.end(), o) == taken.end();
      });
      if (over != w.over.end()) {
        taken.push_back(*over);
        pass.slot[w.tensor] = pass.slot[*over];
        continue;
      }
      const auto candidate = std::find_if(dead.rbegin(), dead.rend(), [&](const Dead& d) {
        return d.type == t.type && d.bytes == t.bytes;
      });
      if (candidate != dead.rend() &&
          (candidate->node + 1 == node ||
           t.bytes + estimate.between(candidate->node, node) <= estimate.peak)) {
        if (candidate->node + 1 != node) estimate.keep(candidate->node, node, t.bytes);
        reused[candidate->action] = true;
        pass.slot[w.tensor] = candidate->slot;
        dead.erase(std::next(candidate).base());
        continue;
      }
      pass.slot[w.tensor] = new_slot(made_of(w.tensor));
      push(Act::alloc, pass.slot[w.tensor], t.bytes);
    }
    uint16_t workspace = 0;
    if (call.workspace > 0) {
      workspace = new_slot(CompiledPass::Made::temporary);
      push(Act::alloc, workspace, call.workspace);
    }
    std::array<uint16_t, kMaxSlots> own;
    own.fill(UINT16_MAX);
    for (const Result& r : call.results) {
      pass.slot[r.tensor] = new_slot(made_of(r.tensor));
      own[r.slot] = pass.slot[r.tensor];
    }
    if (call.pointwise) {
      CompiledPass::Pointwise& p = pass.pointwise.emplace_back();
      p.action = pass.actions.size();
      for (Tensor t : taken) p.overwritten += tensors_[t].bytes;
    }
    for (const OpAction& a : call.steps) {
      pass.actions.push_back(a);
      reused.push_back(false);
      if (a.act != Act::alloc && a.act != Act::free) continue;
      uint16_t& slot = own[a.slot];
      if (slot == UINT16_MAX) slot = new_slot(CompiledPass::Made::temporary);
      pass.actions.back().slot = slot;
    }
    if (call.workspace > 0) push(Act::free, workspace, 0);
    // Those that nothing reads go too.
    Tensors ends;
    for (Tensor t = 0; t < tensors_.size(); ++t) {
      const Info& x = tensors_[t];
      const bool unread = !x.output && !x.input && x.made == static_cast<int>(c) && x.last < 0;
      if ((ends_here(t) || unread) && std::find(taken.begin(), taken.end(), t) == taken.end())
        ends.push_back(t);
    }
    for (Tensor t : ends) {
      const Info& x = tensors_[t];
      push(Act::free, pass.slot[t], 0);
      if (!x.input) dead.push_back({x.type, x.bytes, pass.slot[t], node, pass.actions.size() - 1});
    }
  }
  size_t kept = 0;
  auto pointwise = pass.pointwise.begin();
  for (size_t i = 0; i < pass.actions.size(); ++i) {
    if (pointwise != pass.pointwise.end() && pointwise->action == i) (pointwise++)->action = kept;
    if (!reused[i]) pass.actions[kept++] = pass.actions[i];
  }
  pass.actions.resize(kept);
  return pass;
}

}  // namespace shardsim
