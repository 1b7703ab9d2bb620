// The operators by kind: each fills an OpCode from its sizes and types. op_code() chooses.
#pragma once

#include "sim/model/operators.h"

namespace shardsim::op {

// op_embedding.cpp
void embedding(OpCode& c, const OpShape& s, const OpContext& x);
void positions(OpCode& c, const OpShape& s, const OpContext& x);
void add_rows(OpCode& c, const OpShape& s, const OpContext& x);

// op_linear.cpp
void linear(OpCode& c, const OpShape& s, const OpContext& x);

// op_norm.cpp
void rms_norm(OpCode& c, const OpShape& s, const OpContext& x);
void layer_norm(OpCode& c, const OpShape& s, const OpContext& x);

// op_chain.cpp
void square(OpCode& c, const OpShape& s, const OpContext& x);
void row_mean(OpCode& c, const OpShape& s, const OpContext& x);
void add_scalar(OpCode& c, const OpShape& s, const OpContext& x);
void rsqrt(OpCode& c, const OpShape& s, const OpContext& x);
void scale_rows(OpCode& c, const OpShape& s, const OpContext& x);
void mul_weight(OpCode& c, const OpShape& s, const OpContext& x);

// op_matmul.cpp
void matmul(OpCode& c, const OpShape& s, const OpContext& x);
void relayout(OpCode& c, const OpShape& s, const OpContext& x);
void contiguous(OpCode& c, const OpShape& s, const OpContext& x);
void mul_scalar(OpCode& c, const OpShape& s, const OpContext& x);
void causal_mask(OpCode& c, const OpShape& s, const OpContext& x);
void add_to_scores(OpCode& c, const OpShape& s, const OpContext& x);
void softmax(OpCode& c, const OpShape& s, const OpContext& x);

// op_moe.cpp
void topk(OpCode& c, const OpShape& s, const OpContext& x);
void zeros_like(OpCode& c, const OpShape& s, const OpContext& x);
void sort_ids(OpCode& c, const OpShape& s, const OpContext& x);
void divide_ids(OpCode& c, const OpShape& s, const OpContext& x);
void gather_rows(OpCode& c, const OpShape& s, const OpContext& x);
void add_at_rows(OpCode& c, const OpShape& s, const OpContext& x);

// op_attention.cpp
void rope(OpCode& c, const OpShape& s, const OpContext& x);
void repeat_kv(OpCode& c, const OpShape& s, const OpContext& x);
void attention(OpCode& c, const OpShape& s, const OpContext& x);
void split_qkv(OpCode& c, const OpShape& s, const OpContext& x);

// op_pointwise.cpp
void batch(OpCode& c, const OpShape& s, const OpContext& x);
void table(OpCode& c, const OpShape& s, const OpContext& x);
void arange(OpCode& c, const OpShape& s, const OpContext& x);
void activation(OpCode& c, const OpShape& s, const OpContext& x, const char* name,
                const char* backward);
void relu(OpCode& c, const OpShape& s, const OpContext& x);
void dropout(OpCode& c, const OpShape& s, const OpContext& x);
void mul(OpCode& c, const OpShape& s, const OpContext& x);
void add(OpCode& c, const OpShape& s, const OpContext& x);
void cast_param(OpCode& c, const OpShape& s, const OpContext& x);
void cast(OpCode& c, const OpShape& s, const OpContext& x);

// op_loss.cpp
void cross_entropy(OpCode& c, const OpShape& s, const OpContext& x);
void fused_loss(OpCode& c, const OpShape& s, const OpContext& x);
void sum(OpCode& c, const OpShape& s, const OpContext& x);

// op_vectors.cpp
void bag(OpCode& c, const OpShape& s, const OpContext& x);
void mean(OpCode& c, const OpShape& s, const OpContext& x);
void scale(OpCode& c, const OpShape& s, const OpContext& x);

}  // namespace shardsim::op
