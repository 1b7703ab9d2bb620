#include "sim/model/model.h"

#include <algorithm>

#include "sim/base/error.h"

namespace shardsim {

namespace {

// Adds modules in pre-order: open() before its children, close() after them.
class TreeBuilder {
 public:
  explicit TreeBuilder(Model& model) : model_(model) {}

  ModuleId open(const char* name, int32_t index = -1, Module::Kind kind = Module::Kind::plain) {
    const ModuleId id{static_cast<uint32_t>(model_.modules.size())};
    Module m;
    m.parent = open_.empty() ? ModuleId{} : open_.back();
    m.name = name;
    m.index = index;
    m.kind = kind;
    m.first_param = static_cast<uint32_t>(model_.params.size());
    model_.modules.push_back(m);
    open_.push_back(id);
    return id;
  }

  ParamId param(const char* name, Shape shape, int32_t index = -1) {
    Module& m = model_.modules[open_.back().v];
    SHARDSIM_ASSERT(model_.params.size() == m.first_param + m.own_params,
                    "a module's own parameters come before its children's");
    ++m.own_params;
    model_.params.push_back({open_.back(), name, index, shape, {}});
    return {static_cast<uint32_t>(model_.params.size() - 1)};
  }

  void close() {
    Module& m = model_.modules[open_.back().v];
    m.end = static_cast<uint32_t>(model_.modules.size());
    m.end_param = static_cast<uint32_t>(model_.params.size());
    open_.pop_back();
  }

  // A module that only owns a weight and perhaps a bias.
  ModuleId leaf(const char* name, Shape weight, int64_t bias = 0, int32_t index = -1) {
    const ModuleId id = open(name, index);
    param("weight", weight);
    if (bias > 0) param("bias", Shape::of(bias));
    close();
    return id;
  }

  ModuleId linear(const char* name, int64_t out, int64_t in, bool bias, int32_t index = -1) {
    return leaf(name, Shape::of(out, in), bias ? out : 0, index);
  }

 private:
  Model& model_;
  std::vector<ModuleId> open_;
};

void llama(Model& model) {
  const Architecture& a = model.architecture;
  const bool hf = a.naming == Naming::hugging_face;
  const int64_t q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
  TreeBuilder t(model);
  t.open("");
  if (hf) t.open("model");
  model.embedding.push_back(t.leaf("embed_tokens", Shape::of(a.vocab, a.hidden)));
  const ParamId embedding{static_cast<uint32_t>(model.params.size() - 1)};
  t.open("layers", -1, Module::Kind::module_list);
  for (int64_t i = 0; i < a.layers; ++i) {
    model.blocks.push_back(t.open("", static_cast<int32_t>(i)));
    t.leaf("input_layernorm", Shape::of(a.hidden));
    t.open("self_attn");
    t.linear("q_proj", q, a.hidden, a.qkv_bias);
    t.linear("k_proj", kv, a.hidden, a.qkv_bias);
    t.linear("v_proj", kv, a.hidden, a.qkv_bias);
    t.linear("o_proj", a.hidden, q, a.o_bias);
    if (a.qk_norm) {
      t.leaf("q_norm", Shape::of(a.head_dim));
      t.leaf("k_norm", Shape::of(a.head_dim));
    }
    t.close();
    t.leaf("post_attention_layernorm", Shape::of(a.hidden));
    if (a.experts > 0) {
      t.open(hf ? "block_sparse_moe" : "mlp");
      t.linear("gate", a.experts, a.hidden, false);
      t.open("experts", -1, Module::Kind::module_list);
      for (int64_t e = 0; e < a.experts; ++e) {
        t.open("", static_cast<int32_t>(e));
        t.linear(hf ? "w1" : "gate_proj", a.ffn, a.hidden, false);
        if (hf) t.linear("w2", a.hidden, a.ffn, false);
        t.linear(hf ? "w3" : "up_proj", a.ffn, a.hidden, false);
        if (!hf) t.linear("down_proj", a.hidden, a.ffn, false);
        t.close();
      }
      t.close();
      t.close();
      t.close();
      continue;
    }
    t.open("mlp");
    t.linear("gate_proj", a.ffn, a.hidden, a.mlp_bias);
    t.linear("up_proj", a.ffn, a.hidden, a.mlp_bias);
    t.linear("down_proj", a.hidden, a.ffn, a.mlp_bias);
    t.close();
    t.close();
  }
  t.close();
  model.head.push_back(t.leaf("norm", Shape::of(a.hidden)));
  if (hf) t.close();
  model.head.push_back(t.linear("lm_head", a.vocab, a.hidden, false));
  if (a.tied) model.params.back().alias = embedding;
  t.close();
}

// Gpt2 of the recorder's programs of FSDP1 and of training memory.
void flat_gpt2(Model& model) {
  const Architecture& a = model.architecture;
  const int64_t h = a.hidden;
  const bool fsdp1 = a.naming == Naming::recorder_fsdp1;
  const bool bias = !a.no_bias;
  TreeBuilder t(model);
  t.open("");
  model.embedding.push_back(t.leaf("wte", Shape::of(a.vocab, h)));
  const ParamId embedding{static_cast<uint32_t>(model.params.size() - 1)};
  model.embedding.push_back(t.leaf("wpe", Shape::of(a.max_positions, h)));
  t.open("layers", -1, Module::Kind::module_list);
  for (int64_t i = 0; i < a.layers; ++i) {
    model.blocks.push_back(t.open("", static_cast<int32_t>(i)));
    t.leaf("ln_1", Shape::of(h), bias ? h : 0);
    t.linear("c_attn", 3 * h, h, bias);
    t.linear(fsdp1 ? "attn_proj" : "c_proj", h, h, bias);
    t.leaf("ln_2", Shape::of(h), bias ? h : 0);
    t.linear("c_fc", a.ffn, h, bias);
    t.linear(fsdp1 ? "mlp_proj" : "c_proj2", h, a.ffn, bias);
    t.close();
  }
  t.close();
  model.head.push_back(t.leaf("ln_f", Shape::of(h), bias ? h : 0));
  model.head.push_back(t.linear("lm_head", a.vocab, h, false));
  if (a.tied) model.params.back().alias = embedding;
  t.close();
}

// transformers' GPT-2; and MPT, the same without biases and, with ALiBi, without a table of positions.
void gpt2(Model& model) {
  const Architecture& a = model.architecture;
  const int64_t h = a.hidden;
  const bool mpt = a.no_bias;
  TreeBuilder t(model);
  const auto norm = [&](const char* name) { return t.leaf(name, Shape::of(h), mpt ? 0 : h); };
  // GPT-2's Conv1D stores [in, out].
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    t.leaf(name, mpt ? Shape::of(out, in) : Shape::of(in, out), mpt ? 0 : out);
  };
  t.open("");
  t.open("transformer");
  model.embedding.push_back(t.leaf("wte", Shape::of(a.vocab, h)));
  const ParamId embedding{static_cast<uint32_t>(model.params.size() - 1)};
  if (a.max_positions > 0) model.embedding.push_back(t.leaf("wpe", Shape::of(a.max_positions, h)));
  t.open(mpt ? "blocks" : "h", -1, Module::Kind::module_list);
  for (int64_t i = 0; i < a.layers; ++i) {
    model.blocks.push_back(t.open("", static_cast<int32_t>(i)));
    norm(mpt ? "norm_1" : "ln_1");
    t.open("attn");
    linear(mpt ? "Wqkv" : "c_attn", h, 3 * h);
    linear(mpt ? "out_proj" : "c_proj", h, h);
    t.close();
    norm(mpt ? "norm_2" : "ln_2");
    t.open(mpt ? "ffn" : "mlp");
    linear(mpt ? "up_proj" : "c_fc", h, a.ffn);
    linear(mpt ? "down_proj" : "c_proj", a.ffn, h);
    t.close();
    t.close();
  }
  t.close();
  model.head.push_back(norm(mpt ? "norm_f" : "ln_f"));
  t.close();
  model.head.push_back(t.linear("lm_head", a.vocab, h, false));
  if (a.tied) model.params.back().alias = embedding;
  t.close();
}

// T5 as the recorder's program of training memory writes it; transformers' names where those are wanted.
void t5(Model& model) {
  const Architecture& a = model.architecture;
  const bool hf = a.naming == Naming::hugging_face;
  const int64_t h = a.hidden, width = a.heads * a.head_dim;
  TreeBuilder t(model);
  const auto attention = [&](const char* name) {
    t.open(name, -1, Module::Kind::module_list);
    for (int32_t i = 0; i < 4; ++i) t.linear("", i < 3 ? width : h, i < 3 ? h : width, false, i);
    t.close();
  };
  t.open("");
  model.embedding.push_back(t.leaf("shared", Shape::of(a.vocab, h)));
  const ParamId embedding{static_cast<uint32_t>(model.params.size() - 1)};
  t.open(hf ? "block" : "layers", -1, Module::Kind::module_list);
  for (int64_t i = 0; i < 2 * a.layers; ++i) {
    model.blocks.push_back(t.open("", static_cast<int32_t>(i)));
    attention(hf ? "SelfAttention" : "a");
    t.leaf(hf ? "layer_norm" : "na", Shape::of(h));
    t.leaf(hf ? "final_layer_norm" : "nm", Shape::of(h));
    t.linear("wi", a.ffn, h, false);
    t.linear("wo", h, a.ffn, false);
    if (i >= a.layers) {
      attention(hf ? "EncDecAttention" : "x");
      t.leaf(hf ? "cross_layer_norm" : "nx", Shape::of(h));
    }
    t.close();
  }
  t.close();
  t.open(hf ? "relative_attention_bias" : "rel", -1, Module::Kind::module_list);
  for (int32_t i = 0; i < 2; ++i)
    model.relative.push_back(t.leaf("", Shape::of(a.relative_buckets, a.heads), 0, i));
  t.close();
  t.open(hf ? "final_layer_norm" : "nf", -1, Module::Kind::module_list);
  model.encoder_norm = t.leaf("", Shape::of(h), 0, 0);
  model.head.push_back(t.leaf("", Shape::of(h), 0, 1));
  t.close();
  model.head.push_back(t.linear("lm_head", a.vocab, h, false));
  if (a.tied) model.params.back().alias = embedding;
  t.close();
}

void transformer(Model& model) {
  const Architecture& a = model.architecture;
  const int64_t d = a.hidden;
  TreeBuilder t(model);
  t.open("");
  model.embedding.push_back(t.leaf("tok_embeddings", Shape::of(a.vocab, d)));
  const ParamId embedding{static_cast<uint32_t>(model.params.size() - 1)};
  model.embedding.push_back(t.leaf("pos_embeddings", Shape::of(a.max_positions, d)));
  t.open("layers", -1, Module::Kind::module_list);
  for (int64_t i = 0; i < a.layers; ++i) {
    model.blocks.push_back(t.open("", static_cast<int32_t>(i)));
    t.leaf("attention_norm", Shape::of(d), d);
    t.open("attention");
    for (const char* name : {"wq", "wk", "wv", "wo"}) t.linear(name, d, d, false);
    t.close();
    t.leaf("ffn_norm", Shape::of(d), d);
    t.open("feed_forward");
    t.linear("w1", a.ffn, d, true);
    t.linear("w2", d, a.ffn, true);
    t.close();
    t.close();
  }
  t.close();
  model.head.push_back(t.leaf("norm", Shape::of(d), d));
  model.head.push_back(t.linear("output", a.vocab, d, false));
  if (a.tied) model.params.back().alias = embedding;
  t.close();
}

void stack(Model& model) {
  const Architecture& a = model.architecture;
  TreeBuilder t(model);
  const bool fsdp1 = a.naming == Naming::recorder_fsdp1;
  t.open("");
  if (fsdp1 && a.root_first.out)
    model.embedding.push_back(
        t.linear("pre", a.root_first.out, a.root_first.in, a.root_first_bias));
  t.open("layers", -1, Module::Kind::module_list);
  int32_t i = 0;
  if (a.family == Family::stack) {
    for (const auto& block : a.linear_blocks) {
      model.blocks.push_back(t.open("", i++));
      int32_t j = 0;
      for (const LinearShape& l : block) t.linear("", l.out, l.in, a.bias, j++);
      t.close();
    }
  } else {
    for (const auto& block : a.bag_blocks) {
      model.blocks.push_back(t.open("", i++));
      t.open("p", -1, Module::Kind::parameter_list);
      int32_t j = 0;
      for (const auto& dims : block) {
        Shape s;
        s.rank = static_cast<int>(dims.size());
        for (size_t d = 0; d < dims.size(); ++d) s.dim[d] = dims[d];
        t.param("", s, j++);
      }
      t.close();
      t.close();
    }
  }
  t.close();
  if (!fsdp1 && a.root_first.out)
    model.embedding.push_back(
        t.linear("first", a.root_first.out, a.root_first.in, a.root_first_bias));
  if (a.root_last.out)
    model.head.push_back(
        t.linear(fsdp1 ? "head" : "last", a.root_last.out, a.root_last.in, a.root_last_bias));
  if (!a.unused.empty()) {
    t.open("unused", -1, Module::Kind::module_list);
    int32_t j = 0;
    for (const LinearShape& l : a.unused) t.linear("", l.out, l.in, a.bias, j++);
    t.close();
  }
  t.close();
}

void vectors(Model& model) {
  const Architecture& a = model.architecture;
  TreeBuilder t(model);
  const auto list = [&](const std::vector<int64_t>& sizes) {
    const ModuleId id = t.open("p", -1, Module::Kind::parameter_list);
    int32_t j = 0;
    for (int64_t n : sizes) t.param("", Shape::of(n), j++);
    t.close();
    return id;
  };
  t.open("");
  t.open("layers", -1, Module::Kind::module_list);
  int32_t i = 0;
  for (const auto& block : a.bag_blocks) {
    model.blocks.push_back(t.open("", i++));
    std::vector<int64_t> sizes;
    sizes.reserve(block.size());
    for (const auto& dims : block) sizes.push_back(dims.front());
    list(sizes);
    t.close();
  }
  t.close();
  if (!a.root_vectors.empty()) model.head.push_back(list(a.root_vectors));
  t.close();
}

void check(const Architecture& a) {
  const auto positive = [](int64_t v, const char* what) {
    if (v <= 0) throw Error(std::string("model: ") + what + " must be at least 1");
  };
  if (!takes_tokens(a.family)) {
    if (a.linear_blocks.empty() && a.bag_blocks.empty())
      throw Error("model: blocks: expected at least one block");
    return;
  }
  positive(a.vocab, "vocab");
  positive(a.hidden, "hidden");
  positive(a.layers, "layers");
  positive(a.ffn, "ffn");
  positive(a.heads, "heads");
  positive(a.kv_heads, "kv_heads");
  positive(a.head_dim, "head_dim");
  if (a.heads % a.kv_heads != 0)
    throw Error("model: kv_heads " + std::to_string(a.kv_heads) + " does not divide heads " +
                std::to_string(a.heads));
}

}  // namespace

std::string Model::module_name(ModuleId m) const {
  std::string out;
  for (; m.valid() && m.v != 0; m = modules[m.v].parent) {
    const Module& x = modules[m.v];
    std::string part = x.index >= 0 ? std::to_string(x.index) : std::string(x.name);
    if (!out.empty()) part += "." + out;
    out = std::move(part);
  }
  return out;
}

ModuleId Model::child(ModuleId m, std::string_view name) const {
  for (uint32_t c = m.v + 1; c < modules[m.v].end; c = modules[c].end)
    if (name == (modules[c].index < 0 ? modules[c].name : std::to_string(modules[c].index)))
      return {c};
  return {};
}

std::string Model::param_name(ParamId p) const {
  const Param& x = params[p.v];
  std::string out = module_name(x.module);
  if (!out.empty()) out += ".";
  return out + (x.index >= 0 ? std::to_string(x.index) : std::string(x.name));
}

int64_t Model::numel() const {
  int64_t n = 0;
  for (const Param& p : params)
    if (!p.alias.valid()) n += p.shape.numel();
  return n;
}

Bytes buffer_bytes(const Architecture& a) {
  if (a.rope_positions == 0 || a.rope == RopeForm::none) return 0;
  const int64_t frequencies = a.head_dim / 2;
  return a.rope == RopeForm::complex ? 8 * a.rope_positions * frequencies : 4 * frequencies;
}

Model build_model(const Architecture& architecture) {
  check(architecture);
  Model model;
  model.architecture = architecture;
  switch (architecture.family) {
    case Family::llama: llama(model); break;
    case Family::gpt2:
      if (architecture.naming == Naming::hugging_face)
        gpt2(model);
      else
        flat_gpt2(model);
      break;
    case Family::transformer: transformer(model); break;
    case Family::t5: t5(model); break;
    case Family::stack:
    case Family::bag: stack(model); break;
    case Family::vectors: vectors(model); break;
  }
  return model;
}

bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, mark = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

void set_dtype(Model& model, const std::string& pattern, DType dtype) {
  for (uint32_t i = 0; i < model.params.size(); ++i)
    if (matches(pattern, model.param_name({i}))) model.params[i].dtype = dtype;
}

void freeze(Model& model, const std::vector<std::string>& patterns) {
  if (patterns.empty()) return;
  std::vector<bool> used(patterns.size(), false);
  for (uint32_t i = 0; i < model.params.size(); ++i) {
    const std::string name = model.param_name({i});
    for (size_t p = 0; p < patterns.size(); ++p)
      if (matches(patterns[p], name)) {
        used[p] = true;
        model.params[i].frozen = true;
        if (model.params[i].alias.valid()) model.params[model.params[i].alias.v].frozen = true;
      }
  }
  for (size_t p = 0; p < patterns.size(); ++p)
    if (!used[p])
      throw Error::at(element("training.frozen", p), "no parameter matches '" + patterns[p] + "'",
                      "* stands for any run of characters: \"*.mlp.*\"");
  if (std::all_of(model.params.begin(), model.params.end(),
                  [](const Param& p) { return p.frozen; }))
    throw Error::at("training.frozen", "every parameter matches, and nothing is left to train",
                    "PyTorch's backward raises: the loss does not require a gradient");
}

}  // namespace shardsim
