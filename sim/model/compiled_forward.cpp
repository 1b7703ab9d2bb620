#include "sim/model/compiled_llama.h"

namespace shardsim {

// compiled.md 2. Under checkpointing the norms' row factors are not written, and v's product comes
// between the complex numbers' steps.
void write_block_forward(LlamaGraph& g) {
  const CompiledShape& s = g.shape();
  const CompiledContext& x = g.context();
  const bool keeps = x.training && x.checkpoint == GraphCheckpoint::none;
  g.norm1(keeps);
  g.project_q();
  g.project_k();
  switch (s.rope) {
    case RopeForm::none:
      g.project_v();
      g.q = g.raw_q;
      g.k = g.raw_k;
      break;
    case RopeForm::complex: {
      const auto q = g.times(g.to_pairs(g.raw_q), g.cos);
      const auto k = g.times(g.to_pairs(g.raw_k), g.cos);
      if (!keeps) g.project_v();
      g.from_pairs(q, {g.q = g.rows(s.q_dim())});
      g.from_pairs(k, {g.k = g.rows(s.kv_dim())});
      if (keeps) g.project_v();
      break;
    }
    case RopeForm::hf:
      g.project_v();
      if (g.halves_in_one()) {
        g.rotate_halves(g.raw_q, g.raw_k, g.q, g.k);
      } else {
        g.q = g.rotate_half(g.raw_q);
        g.k = g.rotate_half(g.raw_k);
      }
      break;
  }
  g.attend();
  g.project_o();
  g.add_and_norm2(keeps);
  g.project_gate();
  g.project_up();
  g.silu_mul();
  const auto down = g.linear(g.prod, s.ffn, s.hidden);
  g.result = g.rows(s.hidden);
  g.graph.pointwise("add", {g.x, g.o, down}, {{g.result, {g.o, down}}});
}

// compiled.md 5. The partitioner keeps what a product of the backward would have to read from memory;
// selective checkpointing keeps every second product, counted from the first, and attention, but not
// what nothing reads (down's output).
std::vector<GraphWriter::Tensor LlamaGraph::*> saved_of_block(const CompiledShape& shape,
                                                              const CompiledContext& context) {
  using G = LlamaGraph;
  std::vector<GraphWriter::Tensor G::*> saved{&G::x};
  if (shape.rope != RopeForm::none) saved.push_back(&G::cos);
  if (shape.rope == RopeForm::hf) saved.push_back(&G::sin);
  const auto add = [&](std::initializer_list<GraphWriter::Tensor G::*> more) {
    for (const auto tensor : more) saved.push_back(tensor);
  };
  switch (context.checkpoint) {
    case GraphCheckpoint::none:
      add({&G::r1, &G::y1, &G::q, &G::k, &G::v, &G::attention, &G::lse, &G::seed, &G::offset, &G::o,
           &G::r2, &G::y2, &G::gate, &G::up, &G::prod});
      break;
    case GraphCheckpoint::selective_op:
      add({&G::raw_q, &G::v, &G::attention, &G::lse, &G::seed, &G::offset, &G::gate});
      break;
    case GraphCheckpoint::full: break;
  }
  return saved;
}

CompiledGraph compile_block(const CompiledShape& s, const CompiledContext& x) {
  using Owner = GraphWriter::Owner;
  GraphWriter forward(x.op), backward(x.op);
  LlamaGraph f(forward, s, x);
  const Bytes row = f.e() * s.tokens;
  const bool hf = s.rope == RopeForm::hf;
  const Bytes table = hf ? bytes_of(x.tables) * s.seq * s.head_dim : 4 * s.seq * s.head_dim;
  f.x = f.graph.input(row * s.hidden, x.type, Owner::caller);
  if (s.rope != RopeForm::none) f.cos = f.graph.input(table, x.tables, Owner::caller);
  if (hf) f.sin = f.graph.input(table, x.tables, Owner::caller);
  write_block_forward(f);
  CompiledGraph c;
  c.out = x.type;
  GraphWriter::Tensors outputs{f.result};
  std::vector<GraphWriter::Tensor LlamaGraph::*> saved;
  if (x.training)
    for (auto member : saved_of_block(s, x))
      if (f.*member != LlamaGraph::kNone) saved.push_back(member);
  for (auto member : saved) outputs.push_back(f.*member);
  LlamaGraph b(backward, s, x);
  if (x.training) {
    for (auto member : saved) {
      const bool of_root = member == &LlamaGraph::cos || member == &LlamaGraph::sin;
      const bool input = of_root || member == &LlamaGraph::x;
      b.*member = b.graph.input(f.graph.bytes(f.*member), f.graph.type(f.*member),
                                input ? Owner::autograd : Owner::saved);
    }
    const auto dy = b.graph.input(row * s.hidden, x.type, Owner::autograd);
    const BlockGradients made = write_block_backward(b, dy);
    GraphWriter::Tensors gradients;
    for (auto t : made.params)
      if (t != LlamaGraph::kNone) gradients.push_back(t);
    c.backward = b.graph.finish({made.input}, gradients);
    const auto slot = [&](GraphWriter::Tensor t) {
      return t == LlamaGraph::kNone ? UINT16_MAX : c.backward.slot[t];
    };
    for (auto t : made.params) c.param_grads.push_back(slot(t));
    c.input_grad = slot(made.input);
  }
  c.forward = f.graph.finish(outputs, {});
  c.output = c.forward.slot[f.result];
  for (auto member : saved) c.saved.push_back(c.forward.slot[f.*member]);
  return c;
}

}  // namespace shardsim
