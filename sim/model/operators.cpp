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
    case OpKind::dense: op::dense(c, s, x); break;
    case OpKind::mean: op::mean(c, s, x); break;
    case OpKind::scale: op::scale(c, s, x); break;
  }
  return c;
}

}  // namespace shardsim
