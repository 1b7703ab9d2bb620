#include <utility>

#include "sim/model/compiled_llama.h"
#include "sim/model/compiled_sums.h"

namespace shardsim {

namespace {

using Owner = GraphWriter::Owner;
using Tensor = GraphWriter::Tensor;
using Tensors = GraphWriter::Tensors;
constexpr Tensor kNone = LlamaGraph::kNone;

// A layer's tensors, and the sum of its input and attention, which the first layer does not write.
struct Layer {
  LlamaGraph g;
  Tensor middle = kNone;
};

// The whole model as one graph (compiled.md 8; seen at 4 layers, 256 rows of width 512). The embedding
// is gathered inside the first norm, each residual is added inside the norm behind it, and RoPE's
// tables are computed inside its kernels.
class ModelGraph {
 public:
  ModelGraph(GraphWriter& graph, const CompiledShape& s, const CompiledContext& x)
      : graph_(graph), s_(s), x_(x) {
    for (int64_t i = 0; i < s.layers; ++i) layers_.push_back({LlamaGraph(graph, s, x), kNone});
  }

  Tensor ids = kNone;
  Tensor forward();
  // By parameter: the embedding, the layers', the final norm, the head.
  Tensors backward(Tensor dy);
  // What forward leaves for backward, in the order of the backward's inputs.
  std::vector<Tensor*> saved();

 private:
  int64_t h() const { return s_.hidden; }
  Bytes weight() const { return bytes_of(x_.type) * h(); }
  Tensor rows() { return graph_.tensor(weight() * s_.tokens, x_.type); }
  Tensor like(Tensor t) { return graph_.tensor(graph_.bytes(t), x_.type); }

  void norm(const Tensors& reads, std::vector<GraphWriter::Write> writes, Tensor& r, Tensor& y,
            Bytes besides = 0);
  Tensor rotated(Tensor from);
  // The same for a gradient, which Inductor turns to the product's layout in place afterwards.
  Tensor turned(Tensor gradient);
  // The weight's gradient, then the input's, written over the gradient of the residual.
  Tensor norm_backward(const Tensors& gradients, Tensor input, Tensor r, Tensor residual,
                       Tensor& out);
  void mlp_backward(LlamaGraph& g, Tensor gradient, Tensor* params, Tensor& from_up,
                    Tensor& from_gate);
  struct AttentionGradients {
    Tensor dq, dk, dv;
  };
  AttentionGradients attention_backward(LlamaGraph& g, Tensor gradient);
  Tensor layer_backward(Layer& layer, Tensor gradient, Tensor* params);
  Tensor first_layer_backward(LlamaGraph& g, Tensor gradient, Tensor* params);

  GraphWriter& graph_;
  const CompiledShape& s_;
  const CompiledContext& x_;
  std::vector<Layer> layers_;
  Tensor last_ = kNone, r_ = kNone, y_ = kNone;  // final norm: input, row factors, output
};

void ModelGraph::norm(const Tensors& reads, std::vector<GraphWriter::Write> writes, Tensor& r,
                      Tensor& y, Bytes besides) {
  if (x_.training) writes.emplace_back(r = graph_.tensor(4 * s_.tokens, DType::fp32));
  writes.emplace_back(y = rows());
  graph_.kernel("add_rms_norm", reads, std::move(writes), weight() + besides);
}

Tensor ModelGraph::rotated(Tensor from) {
  if (s_.rope == RopeForm::none) return from;
  const Tensor to = like(from);
  graph_.pointwise("rope", {from}, {to});
  return to;
}

Tensor ModelGraph::forward() {
  Tensors residual;
  Tensor down = kNone;
  for (Layer& layer : layers_) {
    LlamaGraph& g = layer.g;
    const bool first = down == kNone;
    g.x = rows();
    if (first) {
      norm({ids}, {g.x}, g.r1, g.y1, weight() * s_.tokens);
    } else {
      residual.push_back(down);
      norm(residual, {{g.x, {down}}}, g.r1, g.y1);
    }
    g.project_q();
    g.project_k();
    g.project_v();
    g.q = rotated(g.raw_q);
    g.k = rotated(g.raw_k);
    g.attend();
    g.project_o();
    if (first) {
      norm({g.x, g.o}, {}, g.r2, g.y2);
      residual = {g.x, g.o};
    } else {
      layer.middle = rows();
      norm({g.o, g.x}, {{layer.middle, {g.o}}}, g.r2, g.y2);
      residual = {layer.middle};
    }
    g.project_gate();
    g.project_up();
    g.silu_mul();
    down = g.linear(g.prod, s_.ffn, h());
  }
  residual.push_back(down);
  last_ = rows();
  norm(residual, {{last_, {down}}}, r_, y_);
  return layers_.back().g.linear(y_, h(), s_.vocab);
}

std::vector<Tensor*> ModelGraph::saved() {
  std::vector<Tensor*> out{&ids};
  const auto add = [&](std::initializer_list<Tensor*> more) {
    out.insert(out.end(), more.begin(), more.end());
  };
  for (Layer& layer : layers_) {
    LlamaGraph& g = layer.g;
    add({&g.x, &g.r1, &g.y1, &g.q, &g.k, &g.v, &g.attention, &g.lse, &g.seed, &g.offset});
    add({&layer == &layers_.front() ? &g.o : &layer.middle});
    add({&g.r2, &g.y2, &g.gate, &g.up, &g.prod});
  }
  add({&last_, &r_, &y_});
  return out;
}

Tensor ModelGraph::norm_backward(const Tensors& gradients, Tensor input, Tensor r, Tensor residual,
                                 Tensor& out) {
  NormWeightSums sums(graph_, s_, x_);
  Tensors reads = gradients;
  reads.insert(reads.end(), {input, r});
  sums.add(reads, 1);
  const Tensor dw = sums.finished(0);
  if (sums.mixed()) reads.push_back(sums.along_rows());
  if (residual != gradients.front()) reads.push_back(residual);
  out = rows();
  graph_.kernel("rms_norm_backward", reads, {{out, {residual}}}, weight());
  return dw;
}

void ModelGraph::mlp_backward(LlamaGraph& g, Tensor gradient, Tensor* params, Tensor& from_up,
                              Tensor& from_gate) {
  params[kDown] = g.linear_dw(gradient, g.prod, s_.ffn, h());
  const Tensor d_prod = g.linear_dx(gradient, s_.ffn, h());
  const Tensor d_up = g.rows(s_.ffn), d_gate = g.rows(s_.ffn);
  graph_.pointwise("silu_mul_backward", {d_prod, g.gate, g.up}, {d_up, {d_gate, {g.up}}});
  params[kUp] = g.linear_dw(d_up, g.y2, h(), s_.ffn);
  from_up = g.linear_dx(d_up, h(), s_.ffn);
  params[kGate] = g.linear_dw(d_gate, g.y2, h(), s_.ffn);
  from_gate = g.linear_dx(d_gate, h(), s_.ffn);
}

ModelGraph::AttentionGradients ModelGraph::attention_backward(LlamaGraph& g, Tensor gradient) {
  Tensor dq = kNone, dk = kNone, dv = kNone;
  g.attention_backward(g.linear_dx(gradient, s_.q_dim(), h()), g.q, g.k, dq, dk, dv);
  return {dq, dk, dv};
}

Tensor ModelGraph::turned(Tensor gradient) {
  if (s_.rope == RopeForm::none) return gradient;
  const Tensor made = like(gradient);
  graph_.pointwise("relayout", {gradient}, {{made, {gradient}}});
  return made;
}

Tensor ModelGraph::layer_backward(Layer& layer, Tensor gradient, Tensor* params) {
  LlamaGraph& g = layer.g;
  Tensor from_up = kNone, from_gate = kNone, middle = kNone, out = kNone;
  mlp_backward(g, gradient, params, from_up, from_gate);
  params[kPostNorm] = norm_backward({from_up, from_gate}, layer.middle, g.r2, gradient, middle);
  params[kO] = g.linear_dw(middle, g.attention, s_.q_dim(), h());
  auto [dq, dk, dv] = attention_backward(g, middle);
  dk = rotated(dk);
  dq = rotated(dq);
  params[kV] = g.linear_dw(dv, g.y1, h(), s_.kv_dim());
  const Tensor from_v = g.linear_dx(dv, h(), s_.kv_dim());
  dk = turned(dk);
  params[kK] = g.linear_dw(dk, g.y1, h(), s_.kv_dim());
  const Tensor from_k = g.linear_dx(dk, h(), s_.kv_dim());
  dq = turned(dq);
  params[kQ] = g.linear_dw(dq, g.y1, h(), s_.q_dim());
  const Tensor from_q = g.linear_dx(dq, h(), s_.q_dim());
  params[kInNorm] = norm_backward({from_v, from_k, from_q}, g.x, g.r1, middle, out);
  return out;
}

// Both norms in one, weights' gradients of attention behind them, and the embedding's gradient: rows are
// scattered into fp32, which is cast at the end.
Tensor ModelGraph::first_layer_backward(LlamaGraph& g, Tensor gradient, Tensor* params) {
  Tensor from_up = kNone, from_gate = kNone;
  mlp_backward(g, gradient, params, from_up, from_gate);
  const Tensor middle = rows();
  graph_.kernel("rms_norm_backward", {gradient, from_up, from_gate, g.x, g.o, g.r2},
                {{middle, {gradient}}}, weight());
  auto [dq, dk, dv] = attention_backward(g, middle);
  const Tensor from_v = g.linear_dx(dv, h(), s_.kv_dim());
  dk = turned(rotated(dk));
  const Tensor from_k = g.linear_dx(dk, h(), s_.kv_dim());
  dq = turned(rotated(dq));
  const Tensor from_q = g.linear_dx(dq, h(), s_.q_dim());
  NormWeightSums sums(graph_, s_, x_);
  sums.add({from_up, from_gate, g.x, g.o, g.r2, from_v, from_k, from_q, g.r1}, 2);
  params[kPostNorm] = sums.finished(0);
  params[kO] = g.linear_dw(middle, g.attention, s_.q_dim(), h());
  params[kV] = g.linear_dw(dv, g.y1, h(), s_.kv_dim());
  params[kK] = g.linear_dw(dk, g.y1, h(), s_.kv_dim());
  params[kQ] = g.linear_dw(dq, g.y1, h(), s_.q_dim());
  params[kInNorm] = sums.finished(1);
  const Tensor wide = graph_.tensor(4 * s_.vocab * h(), DType::fp32);
  graph_.pointwise("fill", {}, {wide});
  Tensors reads{from_v, from_k, from_q, g.x, ids, middle, g.r1};
  if (sums.mixed()) reads.push_back(sums.along_rows());
  reads.push_back(wide);
  graph_.kernel("embedding_backward", reads, {}, weight() * s_.tokens);
  const Tensor table = graph_.tensor(weight() * s_.vocab, x_.type);
  graph_.pointwise("cast", {wide}, {table});
  return table;
}

Tensors ModelGraph::backward(Tensor dy) {
  const auto layers = static_cast<size_t>(s_.layers);
  Tensors params(1 + kBlockParams * layers + 2, kNone);
  LlamaGraph& g = layers_.back().g;
  params[params.size() - 1] = g.linear_dw(dy, y_, h(), s_.vocab);
  Tensor gradient = g.linear_dx(dy, h(), s_.vocab);
  params[params.size() - 2] = norm_backward({gradient}, last_, r_, gradient, gradient);
  for (size_t i = layers - 1; i > 0; --i)
    gradient = layer_backward(layers_[i], gradient, &params[1 + kBlockParams * i]);
  params[0] = first_layer_backward(layers_[0].g, gradient, &params[1]);
  return params;
}

}  // namespace

CompiledGraph compile_model(const CompiledShape& s, const CompiledContext& x) {
  const Bytes ids = 8 * s.tokens;
  GraphWriter forward(x.op), backward(x.op);
  ModelGraph f(forward, s, x), b(backward, s, x);
  f.ids = forward.input(ids, DType::i64, Owner::caller);
  const Tensor logits = f.forward();
  CompiledGraph c;
  c.out = x.type;
  Tensors outputs{logits};
  std::vector<std::pair<Tensor*, Tensor*>> saved;  // of the forward, of the backward
  if (x.training) {
    const auto from = f.saved(), to = b.saved();
    for (size_t i = 0; i < from.size(); ++i)
      if (*from[i] != kNone) saved.emplace_back(from[i], to[i]);
    for (const auto& [made, input] : saved) {
      outputs.push_back(*made);
      *input = backward.input(forward.bytes(*made), forward.type(*made),
                              made == &f.ids ? Owner::caller : Owner::saved);
    }
    const Tensor dy =
        backward.input(bytes_of(x.type) * s.tokens * s.vocab, x.type, Owner::autograd);
    const Tensors gradients = b.backward(dy);
    c.backward = backward.finish({}, gradients);
    for (Tensor t : gradients) c.param_grads.push_back(c.backward.slot[t]);
  }
  c.forward = forward.finish(outputs, {});
  c.output = c.forward.slot[logits];
  for (const auto& [made, input] : saved) c.saved.push_back(c.forward.slot[*made]);
  return c;
}

}  // namespace shardsim
