#include "sim/model/program.h"

#include <algorithm>
#include <string>

#include "sim/base/error.h"
#include "sim/model/blocks.h"
#include "sim/model/class_builder.h"

namespace shardsim {

namespace {

// x * p.mean() for each vector.
StageClass vector_block(const std::vector<int64_t>& sizes, int64_t rows, int64_t width) {
  ClassBuilder b;
  int16_t v = 0;
  int32_t p = 0;
  for (int64_t n : sizes) {
    const int16_t mean = b.run(OpKind::mean, features(rows, n, 1), {-1, -1, -1}, {p++, -1});
    const int16_t out = b.run(OpKind::scale, features(rows, width, width), {v, mean, -1});
    b.drop({mean});
    if (v != 0) b.drop({v});
    v = out;
  }
  return b.finish(v, true);
}

StageClass transformer_block(const Architecture& a, const Sizes& z) {
  ClassBuilder b;
  const int64_t t = z.tokens, d = a.hidden;
  const auto linear = [&](int64_t in, int64_t out, bool bias) {
    OpShape s = features(t, in, out);
    s.bias = bias;
    return s;
  };
  const auto call = [&](uint32_t module, OpKind op, const OpShape& s, int16_t in,
                        std::array<int32_t, 2> params) {
    b.enter(module, in);
    const int16_t out = b.run(op, s, {in, -1, -1}, params);
    b.exit(module, out);
    return out;
  };
  const int16_t x = 0;
  const int16_t n1 = call(1, OpKind::layer_norm, features(t, d, d), x, {0, 1});
  b.enter(2, n1);
  const int16_t q = call(3, OpKind::linear, linear(d, d, false), n1, {2, -1});
  const int16_t k = call(4, OpKind::linear, linear(d, d, false), n1, {3, -1});
  const int16_t v = call(5, OpKind::linear, linear(d, d, false), n1, {4, -1});
  OpShape att = features(t, 0, 0);
  att.batch = z.batch;
  att.seq = z.seq;
  att.heads = att.kv_heads = a.heads;
  att.head_dim = a.head_dim;
  const int16_t o = b.run(OpKind::attention, att, {q, k, v});
  const int16_t proj = call(6, OpKind::linear, linear(d, d, false), o, {5, -1});
  b.drop({q, k, v, o});
  b.exit(2, proj);
  b.drop({n1});
  const int16_t mid = b.run(OpKind::add, features(t, d, d), {x, proj, -1});
  b.drop({proj});
  const int16_t n2 = call(7, OpKind::layer_norm, features(t, d, d), mid, {6, 7});
  b.enter(8, n2);
  const int16_t w1 = call(9, OpKind::linear, linear(d, a.ffn, true), n2, {8, 9});
  const int16_t act = b.run(OpKind::gelu, features(t, a.ffn, a.ffn), {w1, -1, -1});
  b.drop({w1});
  const int16_t w2 = call(10, OpKind::linear, linear(a.ffn, d, true), act, {10, 11});
  b.drop({act});
  b.exit(8, w2);
  b.drop({n2});
  const int16_t out = b.run(OpKind::add, features(t, d, d), {mid, w2, -1});
  b.drop({w2, mid});
  return b.finish(out, true);
}

// h + pos_embeddings(arange): the ids and the rows looked up stay with the root's forward.
StageClass learned_positions(const Architecture& a, const Sizes& z) {
  ClassBuilder b;
  OpShape s = features(z.seq, a.max_positions, a.hidden);
  s.seq = z.seq;
  const int16_t ids = b.run(OpKind::arange, s, {-1, -1, -1});
  b.enter(0, ids);
  const int16_t rows = b.run(OpKind::embedding, s, {ids, -1, -1}, {0, -1});
  b.exit(0, rows);
  s.rows = z.tokens;
  StageClass c = b.finish(b.run(OpKind::add_rows, s, {0, rows, -1}));
  c.enters_itself = true;
  c.root_locals = {ids, rows};
  return c;
}

StageClass single(OpKind op, const OpShape& s, std::array<int32_t, 2> params = {-1, -1}) {
  ClassBuilder b;
  const int16_t out = b.run(op, s, {0, -1, -1}, params);
  return b.finish(out);
}

// The last stages of a model that returns the loss.
void loss_in_forward(Program& program, const Model& model, const ProgramInput& in, const Sizes& z) {
  const Architecture& a = model.architecture;
  const ModuleId head = model.head[1];
  const auto stage = [&](StageClass c, ModuleId m) -> Stage& {
    program.classes.push_back(std::move(c));
    Stage& s = program.stages.emplace_back();
    s.cls = static_cast<uint32_t>(program.classes.size() - 1);
    s.module = m;
    s.first_param = m.valid() ? model.modules[m.v].first_param : 0;
    s.inside = ModuleId{0};
    return s;
  };
  const auto loss_of = [&](int64_t rows) {
    OpShape s = features(rows, a.vocab, 1);
    s.to = in.float_loss ? DType::fp32 : DType::bf16;
    return s;
  };
  switch (in.loss) {
    case ProgramInput::Loss::plain: {
      StageClass logits = single(OpKind::linear, features(z.tokens, a.hidden, a.vocab), {0, -1});
      logits.holds_input = true;  // an argument of the function that makes the loss
      stage(std::move(logits), head).keeps = in.keep_logits;
      if (in.keep_float_logits) {
        OpShape wide = features(z.tokens, a.vocab, a.vocab);
        wide.to = DType::fp32;
        stage(single(OpKind::cast, wide), {}).keeps = true;
      }
      stage(single(OpKind::cross_entropy, loss_of(z.tokens)), {}).loss = true;
      return;
    }
    case ProgramInput::Loss::checkpointed: {
      const int64_t size = ceil_div(z.tokens, in.chunks);
      int32_t chunk = 0;
      uint32_t cls = 0;
      for (int64_t begin = 0; begin < z.tokens; begin += size, ++chunk) {
        const int64_t rows = std::min(size, z.tokens - begin);
        ClassBuilder b;
        OpShape linear = features(rows, a.hidden, a.vocab);
        linear.matrix_input = true;
        b.enter(0, 0);
        const int16_t logits = b.run(OpKind::linear, linear, {0, -1, -1}, {0, -1});
        b.exit(0, logits);
        const int16_t loss = b.run(OpKind::cross_entropy, loss_of(rows), {logits, -1, -1});
        b.drop({logits});
        if (chunk == 0 || rows < size) {
          StageClass c = b.finish(loss);
          c.checkpointed = c.enters_itself = true;
          stage(std::move(c), head);
          cls = program.stages.back().cls;
        } else {
          program.stages.push_back(program.stages.back());
          program.stages.back().cls = cls;
        }
        program.stages.back().chunk = chunk;
        program.stages.back().slices = program.stages.back().adds_loss = true;
      }
      program.stages.back().loss = true;
      return;
    }
    case ProgramInput::Loss::split_logits: {
      stage(single(OpKind::linear, features(z.tokens, a.hidden, a.vocab), {0, -1}), head);
      const int64_t size = ceil_div(z.tokens, in.chunks);
      int32_t chunk = 0;
      for (int64_t begin = 0; begin < z.tokens; begin += size, ++chunk) {
        Stage& s =
            stage(single(OpKind::cross_entropy, loss_of(std::min(size, z.tokens - begin))), {});
        s.chunk = chunk;
        s.slices = s.adds_loss = true;
      }
      program.stages.back().loss = true;
      return;
    }
    case ProgramInput::Loss::fused: {
      OpShape s = features(z.tokens, a.hidden, a.vocab);
      s.chunks = in.chunks;
      StageClass c = single(OpKind::fused_loss, s, {0, -1});
      c.enters_itself = true;  // the head's weight is read, its forward not called
      stage(std::move(c), head).loss = true;
      return;
    }
  }
}

// Encoder and decoder; value 1 is the buckets of distances, 2 and 3 the biases of the two, 4 what the
// encoder has made.
void t5(Program& program, const Model& model, const ProgramInput& in) {
  const Architecture& a = model.architecture;
  const Sizes z{in.micro_batch, in.seq_len, in.micro_batch * in.seq_len};
  program.tokens = z.tokens;
  program.values = 5;
  const auto stage = [&](StageClass c, ModuleId m) -> Stage& {
    program.classes.push_back(std::move(c));
    Stage& s = program.stages.emplace_back();
    s.cls = static_cast<uint32_t>(program.classes.size() - 1);
    s.module = m;
    s.first_param = m.valid() ? model.modules[m.v].first_param : 0;
    if (!m.valid()) s.inside = ModuleId{0};
    return s;
  };
  OpShape ids = features(z.tokens, 1, 1);
  ids.to = DType::i64;
  stage(single(OpKind::input, ids), {}).inside = {};
  ClassBuilder make;
  OpShape square = features(z.seq * z.seq, 1, 1);
  square.to = DType::i64;
  const int16_t buckets = make.run(OpKind::input, square, {-1, -1, -1});
  StageClass distances = make.finish(0);
  distances.published = {buckets};
  stage(std::move(distances), {}).first_published = 1;
  const OpShape table = features(z.tokens, a.vocab, a.hidden);
  stage(single(OpKind::embedding, table, {0, -1}), model.embedding[0]);
  OpShape norm = features(z.tokens, a.hidden, a.hidden);
  norm.norm = NormForm::hf;
  const auto norm_class = [&] {
    ClassBuilder b;
    return b.finish(rms_norm(b, norm, 0, 0));
  };
  for (int side = 0; side < 2; ++side) {
    const bool decodes = side == 1;
    if (decodes) stage(single(OpKind::embedding, table, {0, -1}), model.embedding[0]).source = 0;
    ClassBuilder b(1);
    const OpShape lookup = features(z.seq * z.seq, a.relative_buckets, a.heads);
    Stage& bias = stage(b.finish(b.run(OpKind::embedding, lookup, {1, -1, -1}, {0, -1})),
                        model.relative[static_cast<size_t>(side)]);
    bias.source = 0;
    bias.becomes = static_cast<int16_t>(2 + side);
    bias.external[0] = 1;
    const StageClass block = t5_block(a, z, decodes);
    for (int64_t i = 0; i < a.layers; ++i) {
      const ModuleId m = model.blocks[static_cast<size_t>(side * a.layers + i)];
      if (i == 0) {
        stage(block, m);
      } else {
        program.stages.push_back(program.stages.back());
        program.stages.back().module = m;
        program.stages.back().first_param = model.modules[m.v].first_param;
      }
      Stage& s = program.stages.back();
      s.external[0] = static_cast<int16_t>(2 + side);
      if (decodes) s.external[1] = 4;
    }
    if (!decodes) stage(norm_class(), model.encoder_norm).becomes = 4;
  }
  StageClass last = norm_class();
  last.holds_input = in.loss_in_forward;
  stage(std::move(last), model.head[0]);
  if (in.loss_in_forward) return loss_in_forward(program, model, in, z);
  stage(single(OpKind::linear, features(z.tokens, a.hidden, a.vocab), {0, -1}), model.head[1]);
  OpShape loss = features(z.tokens, a.vocab, 1);
  loss.to = in.float_loss ? DType::fp32 : DType::bf16;
  Stage& s = stage(single(OpKind::cross_entropy, loss), {});
  s.inside = {};
  s.loss = true;
}

CompiledShape compiled_shape(const Architecture& a, const Sizes& z, CompiledShape::What what) {
  CompiledShape s;
  s.what = what;
  s.tokens = z.tokens;
  s.batch = z.batch;
  s.seq = z.seq;
  s.hidden = a.hidden;
  s.ffn = a.ffn;
  s.heads = a.heads;
  s.kv_heads = a.kv_heads;
  s.head_dim = a.head_dim;
  s.vocab = a.vocab;
  s.rope = a.rope;
  s.norm = a.norm;
  s.sdpa = a.sdpa;
  s.layers = a.layers;
  return s;
}

// One stage of all that lies between the batch and the logits; of its steps only the parameters count.
void compile_whole(Program& program, const Architecture& a, const Sizes& z) {
  StageClass whole;
  for (size_t i = 1; i < program.stages.size(); ++i)
    for (Step step : program.classes[program.stages[i].cls].steps) {
      if (step.what != Step::What::run) continue;
      for (int32_t& p : step.param)
        if (p >= 0) p += static_cast<int32_t>(program.stages[i].first_param);
      whole.steps.push_back(step);
    }
  whole.compiled = compiled_shape(a, z, CompiledShape::What::model);
  program.classes.push_back(std::move(whole));
  program.stages.resize(1);
  program.values = 1;
  Stage& s = program.stages.emplace_back();
  s.cls = static_cast<uint32_t>(program.classes.size() - 1);
  s.module = ModuleId{0};
}

void decoder(Program& program, const Model& model, const ProgramInput& in) {
  const Architecture& a = model.architecture;
  const bool is_gpt2 = a.family == Family::gpt2, is_test = a.family == Family::transformer;
  const Sizes z{in.micro_batch, in.seq_len, in.micro_batch * in.seq_len};
  program.tokens = z.tokens;
  const auto add = [&](StageClass c) {
    program.classes.push_back(std::move(c));
    return static_cast<uint32_t>(program.classes.size() - 1);
  };
  const auto stage = [&](uint32_t cls, ModuleId m, bool loss = false) {
    Stage& s = program.stages.emplace_back();
    s.cls = cls;
    s.module = m;
    s.first_param = m.valid() ? model.modules[m.v].first_param : 0;
    s.loss = loss;
  };
  OpShape ids = features(z.tokens, 1, 1);
  ids.to = DType::i64;
  stage(add(single(OpKind::input, ids)), {});
  OpShape table = features(z.tokens, a.vocab, a.hidden);
  stage(add(single(OpKind::embedding, table, {0, -1})), model.embedding[0]);
  if (a.gelu) {  // Gemma scales what it looks up
    stage(add(single(OpKind::mul_scalar, features(z.tokens, a.hidden, a.hidden))), {});
    program.stages.back().inside = ModuleId{0};
  }
  if (is_gpt2 && a.max_positions > 0) {
    OpShape rows = features(z.tokens, a.max_positions, a.hidden);
    rows.seq = z.seq;
    ClassBuilder b;
    const int16_t out = b.run(OpKind::positions, rows, {0, -1, -1}, {0, -1});
    stage(add(b.finish(out)), model.embedding[1]);
    if (a.dropout > 0) {
      stage(add(single(OpKind::dropout, features(z.tokens, a.hidden, a.hidden))), {});
      program.stages.back().inside = ModuleId{0};
    }
  }
  if (is_test) stage(add(learned_positions(a, z)), model.embedding[1]);
  if (a.family == Family::llama && a.rope == RopeForm::hf) {
    stage(add(rotary_tables(a, z)), {});
    program.stages.back().inside = ModuleId{0};
    program.stages.back().first_published = program.values;
    program.values = static_cast<int16_t>(program.values + 2);
  }
  StageClass of_block =
      is_gpt2   ? (a.naming == Naming::hugging_face ? gpt2_block(a, z) : flat_gpt2_block(a, z))
      : is_test ? transformer_block(a, z)
                : llama_block(a, z);
  if (in.compile_blocks) of_block.compiled = compiled_shape(a, z, CompiledShape::What::block);
  const uint32_t block = add(std::move(of_block));
  for (ModuleId m : model.blocks) {
    stage(block, m);
    if (program.classes[block].externals == 2) program.stages.back().external = {1, 2};
  }
  OpShape norm = features(z.tokens, a.hidden, a.hidden);
  norm.norm = a.norm;
  norm.one_expression = a.naming == Naming::recorder_compiled;
  ClassBuilder of_norm;
  StageClass last_norm = is_gpt2 || is_test
                             ? single(OpKind::layer_norm, norm, {0, a.no_bias ? -1 : 1})
                             : of_norm.finish(rms_norm(of_norm, norm, 0, 0));
  // transformers rebinds the variable to the norm's output; the recorder's programs do not.
  last_norm.holds_input = in.loss_in_forward || a.naming != Naming::hugging_face;
  if (in.compile_norm) last_norm.compiled = compiled_shape(a, z, CompiledShape::What::norm);
  stage(add(std::move(last_norm)), model.head[0]);
  if (in.loss_in_forward) return loss_in_forward(program, model, in, z);
  if (in.chunks > 1) {
    // torch.chunk: slices of ceil(seq / chunks), and what is left.
    const int64_t size = ceil_div(z.seq, in.chunks);
    uint32_t head = 0, cross_entropy = 0;
    int32_t chunk = 0;
    for (int64_t begin = 0; begin < z.seq; begin += size, ++chunk) {
      const int64_t rows = z.batch * std::min(size, z.seq - begin);
      if (chunk == 0 || begin + size > z.seq) {
        // A slice of several sequences has its rows apart: what reads it as one matrix copies it.
        const bool apart = z.batch > 1;
        ClassBuilder b;
        const OpShape slice = features(rows, a.hidden, a.hidden);
        const int16_t h = apart ? b.run(OpKind::contiguous, slice, {0, -1, -1}, {-1, -1}) : 0;
        const int16_t logits =
            b.run(OpKind::linear, features(rows, a.hidden, a.vocab), {h, -1, -1}, {0, -1});
        if (apart) b.drop({h});
        head = add(b.finish(logits));
        OpShape loss = features(rows, a.vocab, 1);
        loss.sliced = apart;
        loss.to = in.float_loss ? DType::fp32 : DType::bf16;
        cross_entropy = add(single(OpKind::cross_entropy, loss));
      }
      stage(head, model.head[1]);
      program.stages.back().chunk = chunk;
      program.stages.back().slices = true;
      stage(cross_entropy, {}, begin + size >= z.seq);
      program.stages.back().chunk = chunk;
      program.stages.back().adds_loss = true;
    }
    return;
  }
  stage(add(single(OpKind::linear, features(z.tokens, a.hidden, a.vocab), {0, -1})), model.head[1]);
  if (in.compile_model) compile_whole(program, a, z);
  OpShape loss = features(z.tokens, a.vocab, 1);
  if (is_test) {
    // The root returns its output in fp32, and the loss is its sum.
    loss.to = DType::fp32;
    OpShape wide = features(z.tokens, a.vocab, a.vocab);
    wide.to = DType::fp32;
    stage(add(single(OpKind::cast, wide)), {});
    program.stages.back().inside = ModuleId{0};
    stage(add(single(OpKind::sum, loss)), {}, true);
    return;
  }
  loss.to = in.float_loss ? DType::fp32 : DType::bf16;
  StageClass of_loss = single(OpKind::cross_entropy, loss);
  if (in.compile_loss) {
    of_loss.compiled = compiled_shape(a, z, CompiledShape::What::loss);
    of_loss.compiled->float_loss = in.float_loss;
  }
  stage(add(std::move(of_loss)), {}, true);
}

bool alike(const std::vector<LinearShape>& a, const std::vector<LinearShape>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].out != b[i].out || a[i].in != b[i].in) return false;
  return true;
}

void stack(Program& program, const Model& model, const ProgramInput& in) {
  const Architecture& a = model.architecture;
  const int64_t rows = in.micro_batch;
  program.tokens = rows;
  program.input_is_float = true;
  program.input_features = a.hidden;
  const auto add = [&](StageClass c) {
    program.classes.push_back(std::move(c));
    return static_cast<uint32_t>(program.classes.size() - 1);
  };
  const auto stage = [&](uint32_t cls, ModuleId m, bool loss = false) {
    Stage& s = program.stages.emplace_back();
    s.cls = cls;
    s.module = m;
    s.first_param = m.valid() ? model.modules[m.v].first_param : 0;
    s.loss = loss;
  };
  const auto linear = [&](const LinearShape& l, bool bias) {
    OpShape s = features(rows, l.in, l.out);
    s.matrix_input = true;
    s.bias = bias;
    return s;
  };
  OpShape batch = features(rows, a.hidden, a.hidden);
  batch.to = in.input;
  stage(add(single(OpKind::input, batch)), {});
  int64_t width = a.hidden;
  if (a.root_first.out) {
    stage(add(single(OpKind::linear, linear(a.root_first, a.root_first_bias),
                     {0, a.root_first_bias ? 1 : -1})),
          model.embedding[0]);
    width = a.root_first.out;
  }
  uint32_t cls = 0;
  std::vector<uint32_t> class_of(model.blocks.size());
  // Where parameters differ in type, each block is given its input in its own.
  const bool mixed = std::any_of(model.params.begin(), model.params.end(),
                                 [](const Param& q) { return q.dtype.has_value(); });
  const auto dtype_of = [&](ModuleId m) {
    return model.params[model.modules[m.v].first_param].dtype.value_or(in.storage);
  };
  DType type = a.root_first.out ? dtype_of(model.embedding[0]) : in.input;
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    if (a.family == Family::stack) {
      const auto& block = a.linear_blocks[i];
      const DType own = mixed && !block.empty() ? dtype_of(model.blocks[i]) : type;
      if (i == 0 || mixed || !alike(block, a.linear_blocks[i - 1])) {
        ClassBuilder b;
        int16_t v = 0;
        int32_t p = 0;
        uint32_t m = 1;
        if (own != type) {
          OpShape cast = features(rows, width, width);
          cast.to = own;
          v = b.run(OpKind::cast, cast, {0, -1, -1});
          type = own;
        }
        const int16_t argument = v;
        for (const LinearShape& l : block) {
          b.enter(m, v);
          const int16_t out =
              b.run(OpKind::linear, linear(l, a.bias), {v, -1, -1}, {p, a.bias ? p + 1 : -1});
          b.exit(m++, out);
          // Sequential rebinds its variable; its argument belongs to the caller.
          if (v != argument) b.drop({v});
          v = out;
          p += a.bias ? 2 : 1;
        }
        if (argument != 0) b.drop({argument});
        cls = add(b.finish(v, true));
      }
      if (!block.empty()) width = block.back().out;
    } else if (a.family == Family::vectors) {
      const auto& block = a.bag_blocks[i];
      if (i == 0 || block != a.bag_blocks[i - 1]) {
        std::vector<int64_t> sizes;
        for (const auto& dims : block) sizes.push_back(dims.front());
        cls = add(vector_block(sizes, rows, width));
      }
    } else {
      const auto& block = a.bag_blocks[i];
      if (i == 0 || block != a.bag_blocks[i - 1]) {
        ClassBuilder b;
        int16_t v = 0;
        int32_t p = 0;
        for (const auto& dims : block) {
          int64_t n = 1;
          for (int64_t d : dims) n *= d;
          OpShape s = features(rows, width, n);
          s.scale = a.scale;
          const int16_t out = b.run(OpKind::bag, s, {v, -1, -1}, {p++, -1});
          if (v != 0) b.drop({v});
          v = out;
        }
        cls = add(b.finish(v, true));
      }
    }
    class_of[i] = cls;
  }
  std::vector<int64_t> calls = a.calls;
  if (calls.empty())
    for (size_t i = 0; i < model.blocks.size(); ++i) calls.push_back(static_cast<int64_t>(i));
  for (int64_t i : calls) {
    if (i < 0 || i >= static_cast<int64_t>(model.blocks.size()))
      throw Error("model: calls: there is no block " + std::to_string(i));
    stage(class_of[i], model.blocks[i]);
    program.stages.back().detach = std::find(a.detach.begin(), a.detach.end(), i) != a.detach.end();
  }
  if (!a.root_vectors.empty()) stage(add(vector_block(a.root_vectors, rows, width)), model.head[0]);
  if (a.root_last.out) {
    stage(add(single(OpKind::linear, linear(a.root_last, a.root_last_bias),
                     {0, a.root_last_bias ? 1 : -1})),
          model.head[0]);
    width = a.root_last.out;
  }
  OpShape loss = features(rows, width, 1);
  loss.to = in.float_loss ? DType::fp32 : DType::bf16;
  stage(add(single(OpKind::sum, loss)), {}, true);
}

}  // namespace

Program build_program(const Model& model, const ProgramInput& input) {
  Program program;
  program.stages.reserve(model.blocks.size() + 8);
  if (model.architecture.family == Family::t5)
    t5(program, model, input);
  else if (takes_tokens(model.architecture.family))
    decoder(program, model, input);
  else
    stack(program, model, input);
  return program;
}

int64_t model_flops_per_token(const Model& model, int64_t seq_len) {
  const Architecture& a = model.architecture;
  if (!takes_tokens(a.family)) return 6 * model.numel();
  // The embedding is a lookup; a tied head is a product all the same.
  const int64_t products =
      model.numel() - (a.tied ? 0 : a.vocab * a.hidden) - a.max_positions * a.hidden;
  const int64_t scores = 12 * a.layers * a.heads * a.head_dim * seq_len;
  // A token of the source and one of the target: self-attention of both, and across.
  if (a.family == Family::t5) return 6 * (products - 2 * a.relative_buckets * a.heads) + 3 * scores;
  // Of a mixture's experts a token runs through topk.
  const int64_t idle = a.layers * (a.experts - a.topk) * 3 * a.hidden * a.ffn;
  return 6 * (products - idle) + scores;
}

}  // namespace shardsim
