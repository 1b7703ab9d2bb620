#include "sim/model/compiled_llama.h"
#include "sim/model/compiled_sums.h"

namespace shardsim {

namespace {

using Tensor = GraphWriter::Tensor;

// The backward of a block call by call; compiled.md 3 names them. W makes a weight's gradient, D an
// input's.
class Backward {
 public:
  Backward(LlamaGraph& g, Tensor dy)
      : g_(g), s_(g.shape()), dy_(dy), sums_(g.graph, g.shape(), g.context()) {
    out_.params.fill(LlamaGraph::kNone);
  }
  BlockGradients run();

 private:
  using Param = BlockParam;
  GraphWriter& graph() { return g_.graph; }
  int64_t h() const { return s_.hidden; }

  void weight(Param p, Tensor from, Tensor input, int64_t in, int64_t out) {
    if (trains(p)) out_.params[p] = g_.linear_dw(from, input, in, out);
  }
  bool trains(Param p) const { return (g_.context().frozen >> p & 1) == 0; }
  void W_down() { weight(kDown, dy_, g_.prod, s_.ffn, h()); }
  void D_down() { d_prod_ = g_.linear_dx(dy_, s_.ffn, h()); }
  void W_up() { weight(kUp, d_up_, g_.y2, h(), s_.ffn); }
  void D_up() { from_up_ = g_.linear_dx(d_up_, h(), s_.ffn); }
  void W_gate() { weight(kGate, d_gate_, g_.y2, h(), s_.ffn); }
  void D_gate() { from_gate_ = g_.linear_dx(d_gate_, h(), s_.ffn); }
  void W_o() { weight(kO, d_mid_, g_.attention, s_.q_dim(), h()); }
  void D_o() { d_attention_ = g_.linear_dx(d_mid_, s_.q_dim(), h()); }
  void W_v() { weight(kV, dv_, g_.y1, h(), s_.kv_dim()); }
  void D_v() { from_v_ = g_.linear_dx(dv_, h(), s_.kv_dim()); }
  void W_k() { weight(kK, dk_, g_.y1, h(), s_.kv_dim()); }
  void D_k() { from_k_ = g_.linear_dx(dk_, h(), s_.kv_dim()); }
  void W_q() { weight(kQ, dq_, g_.y1, h(), s_.q_dim()); }
  void D_q() { from_q_ = g_.linear_dx(dq_, h(), s_.q_dim()); }

  // silu * mul's backward, and its forward again under checkpointing.
  void silu();
  // The second norm's backward; `again` makes the first norm's output too.
  void norm2(bool again);
  void attention() {
    const auto or_twice = [](Tensor t, Tensor twice) {
      return twice == LlamaGraph::kNone ? t : twice;
    };
    g_.attention_backward(d_attention_, or_twice(g_.q, twice_q_), or_twice(g_.k, twice_k_), dq_,
                          dk_, dv_);
  }
  // The gradient of RoPE; of k and q in one kernel where their sizes are equal.
  void rotate_dk();
  void rotate_dq();
  void conjugate() { conj_ = g_.conjugate(); }

  // The first norm's backward and both weights' gradients, around the weights' products `others`.
  template <class F>
  void ends_with_many_rows(F&& others);
  void ends_with_few_rows();
  void sum_over_rows();
  void input_gradient();
  void norm_weight(Param p) {
    if (trains(p)) out_.params[p] = sums_.finished(p == kPostNorm ? 0 : 1);
  }

  // Forward steps again.
  template <class F>
  void again(F&& step) {
    graph().recompute(true);
    step();
    graph().recompute(false);
  }
  void rotate_q();  // raw q
  void rotate_k();
  void recompute_everything();

  void many_rows();
  void few_rows();

  LlamaGraph& g_;
  const CompiledShape& s_;
  const Tensor dy_;
  Tensor d_prod_ = 0, d_up_ = 0, d_gate_ = 0, from_up_ = 0, from_gate_ = 0;
  Tensor d_mid_ = 0;  // of the sum of input and attention
  Tensor d_attention_ = 0, dq_ = 0, dk_ = 0, dv_ = 0, from_q_ = 0, from_k_ = 0, from_v_ = 0;
  Tensor conj_ = LlamaGraph::kNone;
  NormWeightSums sums_;
  // Complex RoPE under full checkpointing writes what it rotates twice, once for each kernel of
  // attention.
  Tensor twice_q_ = LlamaGraph::kNone, twice_k_ = LlamaGraph::kNone;
  bool rotated_both_ = false;
  BlockGradients out_;
};

void Backward::silu() {
  const bool checkpointed = g_.context().checkpoint != GraphCheckpoint::none;
  if (checkpointed) g_.prod = g_.rows(s_.ffn);
  d_up_ = g_.rows(s_.ffn);
  d_gate_ = g_.rows(s_.ffn);
  if (checkpointed)
    graph().pointwise("silu_mul_backward", {g_.gate, g_.up, d_prod_}, {g_.prod, d_up_, d_gate_});
  else
    graph().pointwise("silu_mul_backward", {d_prod_, g_.gate, g_.up}, {d_up_, {d_gate_, {g_.up}}});
}

void Backward::norm2(bool again) {
  const GraphWriter::Tensors reads{g_.x, g_.o, g_.r2, from_up_, from_gate_, dy_};
  if (!again) {
    d_mid_ = g_.rows(h());
    graph().kernel("rms_norm_backward", reads, {d_mid_}, g_.weight_bytes());
    return;
  }
  g_.r1 = g_.floats(s_.tokens);
  d_mid_ = g_.rows(h());
  g_.y1 = g_.rows(h());
  graph().kernel("rms_norm_backward", reads, {g_.r1, d_mid_, g_.y1}, 2 * g_.weight_bytes());
}

void Backward::rotate_dk() {
  if (s_.rope == RopeForm::complex) {
    const Tensor pairs = g_.to_pairs(dk_);
    if (conj_ == LlamaGraph::kNone) conjugate();
    const Tensor made = g_.times(pairs, conj_);
    g_.from_pairs(made, {dk_ = g_.rows(s_.kv_dim())});
  } else if (s_.rope == RopeForm::hf) {
    rotated_both_ = g_.halves_in_one();
    if (rotated_both_)
      g_.rotate_halves(dq_, dk_, dq_, dk_);
    else
      dk_ = g_.rotate_half(dk_);
  }
}

void Backward::rotate_dq() {
  if (s_.rope == RopeForm::complex) {
    const Tensor made = g_.times(g_.to_pairs(dq_), conj_);
    g_.from_pairs(made, {dq_ = g_.rows(s_.q_dim())});
  } else if (s_.rope == RopeForm::hf && !rotated_both_) {
    dq_ = g_.rotate_half(dq_);
  }
}

void Backward::rotate_q() {
  const bool twice = g_.context().checkpoint == GraphCheckpoint::full;
  if (s_.rope == RopeForm::none) g_.q = g_.raw_q;
  if (s_.rope == RopeForm::hf) g_.q = g_.rotate_half(g_.raw_q);
  if (s_.rope != RopeForm::complex) return;
  const Tensor product = g_.times(g_.to_pairs(g_.raw_q), g_.cos);
  g_.q = g_.rows(s_.q_dim());
  if (twice) twice_q_ = g_.rows(s_.q_dim());
  if (twice)
    g_.from_pairs(product, {g_.q, twice_q_});
  else
    g_.from_pairs(product, {g_.q});
}

void Backward::rotate_k() {
  const bool twice = g_.context().checkpoint == GraphCheckpoint::full;
  if (s_.rope == RopeForm::none) g_.k = g_.raw_k;
  if (s_.rope == RopeForm::hf) g_.k = g_.rotate_half(g_.raw_k);
  if (s_.rope != RopeForm::complex) return;
  const Tensor product = g_.times(g_.to_pairs(g_.raw_k), g_.cos);
  g_.k = g_.rows(s_.kv_dim());
  if (twice) twice_k_ = g_.rows(s_.kv_dim());
  if (twice)
    g_.from_pairs(product, {g_.k, twice_k_});
  else
    g_.from_pairs(product, {g_.k});
}

void Backward::input_gradient() {
  out_.input = g_.rows(h());
  GraphWriter::Tensors reads{g_.x, g_.r1, from_v_, from_k_, from_q_, d_mid_};
  if (sums_.mixed()) reads.push_back(sums_.along_rows());
  const std::vector<GraphWriter::Write> writes{{out_.input, {d_mid_, from_v_}}};
  if (sums_.mixed())
    graph().pointwise("rms_norm_backward_add", reads, writes, g_.weight_bytes());
  else
    graph().kernel("rms_norm_backward_add", reads, writes, g_.weight_bytes());
}

void Backward::sum_over_rows() {
  sums_.add({g_.x, g_.r1, from_v_, from_k_, from_q_, from_up_, from_gate_, g_.o, g_.r2}, 2);
}

template <class F>
void Backward::ends_with_many_rows(F&& others) {
  sum_over_rows();
  norm_weight(kPostNorm);
  others();
  if (!sums_.mixed()) input_gradient();
  norm_weight(kInNorm);
  if (sums_.mixed()) input_gradient();
}

void Backward::ends_with_few_rows() {
  sum_over_rows();
  input_gradient();
  norm_weight(kPostNorm);
  norm_weight(kInNorm);
  W_o();
  W_q();
}

// Full checkpointing's forward again.
void Backward::recompute_everything() {
  again([&] {
    g_.norm1(true);
    g_.project_q();
    g_.project_k();
    switch (s_.rope) {
      case RopeForm::none:
        g_.project_v();
        rotate_q();
        rotate_k();
        break;
      case RopeForm::complex: {
        const Tensor q = g_.times(g_.to_pairs(g_.raw_q), g_.cos);
        const Tensor k = g_.times(g_.to_pairs(g_.raw_k), g_.cos);
        g_.project_v();
        g_.q = g_.rows(s_.q_dim());
        twice_q_ = g_.rows(s_.q_dim());
        g_.from_pairs(q, {g_.q, twice_q_});
        g_.k = g_.rows(s_.kv_dim());
        twice_k_ = g_.rows(s_.kv_dim());
        g_.from_pairs(k, {g_.k, twice_k_});
        break;
      }
      case RopeForm::hf:
        g_.project_v();
        if (g_.halves_in_one()) {
          g_.rotate_halves(g_.raw_q, g_.raw_k, g_.q, g_.k);
        } else {
          rotate_q();
          rotate_k();
        }
        break;
    }
  });
}

// T >= h (seen from 1 to 4 times): weights' gradients come where they are ready, those of attention's
// four at the end.
void Backward::many_rows() {
  switch (g_.context().checkpoint) {
    case GraphCheckpoint::none:
      W_down();
      D_down();
      break;
    case GraphCheckpoint::selective_op:
      again([&] {
        g_.project_o();
        g_.add_and_norm2(true);
        g_.project_up();
      });
      D_down();
      break;
    case GraphCheckpoint::full:
      recompute_everything();
      again([&] {
        g_.attend();
        g_.project_o();
        g_.add_and_norm2(true);
        g_.project_gate();
        g_.project_up();
      });
      D_down();
      break;
  }
  silu();
  const bool selective = g_.context().checkpoint == GraphCheckpoint::selective_op;
  if (g_.context().checkpoint != GraphCheckpoint::none) W_down();
  W_up();
  D_up();
  W_gate();
  D_gate();
  norm2(selective);
  D_o();
  if (selective)
    again([&] {
      rotate_q();
      g_.project_k();
      rotate_k();
    });
  attention();
  D_v();
  rotate_dk();
  D_k();
  rotate_dq();
  D_q();
  ends_with_many_rows([&] {
    W_o();
    W_v();
    W_k();
    W_q();
  });
}

// T < h (seen at 1/2): Inductor's scheduler goes by estimated peak memory, and a weight's gradient
// waits while it allocates more than it frees.
void Backward::few_rows() {
  const GraphCheckpoint mode = g_.context().checkpoint;
  const bool complex = s_.rope == RopeForm::complex;
  if (complex) conjugate();
  switch (mode) {
    case GraphCheckpoint::none: W_down(); break;
    case GraphCheckpoint::selective_op:
      again([&] {
        if (!complex) rotate_q();
        g_.project_o();
        if (complex) rotate_q();
        g_.add_and_norm2(true);
        g_.project_up();
      });
      break;
    case GraphCheckpoint::full:
      again([&] {
        g_.norm1(true);
        g_.project_k();
        rotate_k();
        g_.project_v();
        g_.project_q();
        rotate_q();
        g_.attend();
        g_.project_o();
        g_.add_and_norm2(true);
        g_.project_gate();
        g_.project_up();
      });
      break;
  }
  D_down();
  silu();
  D_up();
  D_gate();
  norm2(mode == GraphCheckpoint::selective_op);
  if (mode == GraphCheckpoint::selective_op)
    again([&] {
      g_.project_k();
      rotate_k();
    });
  D_o();
  attention();
  rotate_dk();
  if (s_.rope == RopeForm::hf) rotate_dq();
  D_v();
  W_v();
  D_k();
  W_k();
  if (complex) rotate_dq();
  D_q();
  ends_with_few_rows();
  if (mode != GraphCheckpoint::none) W_down();
  W_up();
  W_gate();
}

BlockGradients Backward::run() {
  if (s_.tokens >= h())
    many_rows();
  else
    few_rows();
  return out_;
}

}  // namespace

BlockGradients write_block_backward(LlamaGraph& g, Tensor dy) { return Backward(g, dy).run(); }

}  // namespace shardsim
