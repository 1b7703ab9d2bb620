#include "sim/model/operators.h"

#include "sim/model/op_kinds.h"

namespace shardsim {

OpCode op_code(OpKind kind, const OpShape& s, const OpContext& x) {
  OpCode c;
  switch (kind) {
    case OpKind::input: op::batch(c, s, x); break;
    case OpKind::embedding: op::embedding(c, s, x); break;
    case OpKind::positions: op::positions(c, s, x); break;
    case OpKind::arange: op::arange(c, s, x); break;
    case OpKind::add_rows: op::add_rows(c, s, x); break;
    case OpKind::linear: op::linear(c, s, x); break;
    case OpKind::rms_norm: op::rms_norm(c, s, x); break;
    case OpKind::layer_norm: op::layer_norm(c, s, x); break;
    case OpKind::rope: op::rope(c, s, x); break;
    case OpKind::repeat_kv: op::repeat_kv(c, s, x); break;
    case OpKind::attention: op::attention(c, s, x); break;
    case OpKind::silu: op::activation(c, s, x, "silu", "silu_backward"); break;
    case OpKind::gelu: op::activation(c, s, x, "gelu", "gelu_backward"); break;
    case OpKind::mul: op::mul(c, s, x); break;
    case OpKind::add: op::add(c, s, x); break;
    case OpKind::split_qkv: op::split_qkv(c, s, x); break;
    case OpKind::cast: op::cast(c, s, x); break;
    case OpKind::cast_param: op::cast_param(c, s, x); break;
    case OpKind::cross_entropy: op::cross_entropy(c, s, x); break;
    case OpKind::fused_loss: op::fused_loss(c, s, x); break;
    case OpKind::sum: op::sum(c, s, x); break;
    case OpKind::bag: op::bag(c, s, x); break;
    case OpKind::mean: op::mean(c, s, x); break;
    case OpKind::square: op::square(c, s, x); break;
    case OpKind::row_mean: op::row_mean(c, s, x); break;
    case OpKind::add_scalar: op::add_scalar(c, s, x); break;
    case OpKind::rsqrt: op::rsqrt(c, s, x); break;
    case OpKind::scale_rows: op::scale_rows(c, s, x); break;
    case OpKind::mul_weight: op::mul_weight(c, s, x); break;
    case OpKind::table: op::table(c, s, x); break;
    case OpKind::matmul: op::matmul(c, s, x); break;
    case OpKind::relayout: op::relayout(c, s, x); break;
    case OpKind::contiguous: op::contiguous(c, s, x); break;
    case OpKind::mul_scalar: op::mul_scalar(c, s, x); break;
    case OpKind::causal_mask: op::causal_mask(c, s, x); break;
    case OpKind::add_to_scores: op::add_to_scores(c, s, x); break;
    case OpKind::softmax: op::softmax(c, s, x); break;
    case OpKind::dropout: op::dropout(c, s, x); break;
    case OpKind::relu: op::relu(c, s, x); break;
    case OpKind::topk: op::topk(c, s, x); break;
    case OpKind::zeros_like: op::zeros_like(c, s, x); break;
    case OpKind::sort_ids: op::sort_ids(c, s, x); break;
    case OpKind::divide_ids: op::divide_ids(c, s, x); break;
    case OpKind::gather_rows: op::gather_rows(c, s, x); break;
    case OpKind::add_at_rows: op::add_at_rows(c, s, x); break;
    case OpKind::scale: op::scale(c, s, x); break;
  }
  return c;
}

}  // namespace shardsim
