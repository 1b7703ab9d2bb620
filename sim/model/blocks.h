// The repeated layers of the decoders, each as the code it stands for writes its forward.
#pragma once

#include "sim/model/class_builder.h"

namespace shardsim {

// transformers' Llama and its relatives; module and parameter numbers follow build_model's order. With
// rope: hf, external 0 and 1 are the tables of cosines and sines.
StageClass llama_block(const Architecture& a, const Sizes& z);

// The experts of a mixture in place of an MLP, in a loop: `module` is the mixture's own number in the
// block, `param` its first parameter. Returns the result.
int16_t experts(ClassBuilder& b, const Architecture& a, int64_t tokens, int16_t x, uint32_t module,
                int32_t param);

// A layer of T5, and of its decoder: external 0 is the relative bias, external 1 what the encoder made.
StageClass t5_block(const Architecture& a, const Sizes& z, bool decoder);

// The tables of cosines and sines in the hidden states' type, input 0. The positions and angles stay
// with the root's forward.
StageClass rotary_tables(const Architecture& a, const Sizes& z);

// transformers' GPT-2.
StageClass gpt2_block(const Architecture& a, const Sizes& z);
// Those of the recorder's programs, without submodules: of FSDP1, and of training memory.
StageClass flat_gpt2_block(const Architecture& a, const Sizes& z);

}  // namespace shardsim
