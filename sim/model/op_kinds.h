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

// op_attention.cpp
void rope(OpCode& c, const OpShape& s, const OpContext& x);
void repeat_kv(OpCode& c, const OpShape& s, const OpContext& x);
void attention(OpCode& c, const OpShape& s, const OpContext& x);
void split_qkv(OpCode& c, const OpShape& s, const OpContext& x);

// op_pointwise.cpp
void batch(OpCode& c, const OpShape& s, const OpContext& x);
void arange(OpCode& c, const OpShape& s, const OpContext& x);
void activation(OpCode& c, const OpShape& s, const OpContext& x, const char* name,
                const char* backward);
void mul(OpCode& c, const OpShape& s, const OpContext& x);
void add(OpCode& c, const OpShape& s, const OpContext& x);
void dense(OpCode& c, const OpShape& s, const OpContext& x);
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
