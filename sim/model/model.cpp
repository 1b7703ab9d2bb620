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
  TreeBuilder t(model);
  t.open("");
  model.embedding.push_back(t.leaf("wte", Shape::of(a.vocab, h)));
  const ParamId embedding{static_cast<uint32_t>(model.params.size() - 1)};
  model.embedding.push_back(t.leaf("wpe", Shape::of(a.max_positions, h)));
  t.open("layers", -1, Module::Kind::module_list);
  for (int64_t i = 0; i < a.layers; ++i) {
    model.blocks.push_back(t.open("", static_cast<int32_t>(i)));
    t.leaf("ln_1", Shape::of(h), h);
    t.linear("c_attn", 3 * h, h, true);
    t.linear(fsdp1 ? "attn_proj" : "c_proj", h, h, true);
    t.leaf("ln_2", Shape::of(h), h);
    t.linear("c_fc", a.ffn, h, true);
    t.linear(fsdp1 ? "mlp_proj" : "c_proj2", h, a.ffn, true);
    t.close();
  }
  t.close();
  model.head.push_back(t.leaf("ln_f", Shape::of(h), h));
  model.head.push_back(t.linear("lm_head", a.vocab, h, false));
  if (a.tied) model.params.back().alias = embedding;
  t.close();
}

void gpt2(Model& model) {
  const Architecture& a = model.architecture;
  const int64_t h = a.hidden;
  TreeBuilder t(model);
  t.open("");
  t.open("transformer");
  model.embedding.push_back(t.leaf("wte", Shape::of(a.vocab, h)));
  const ParamId embedding{static_cast<uint32_t>(model.params.size() - 1)};
  model.embedding.push_back(t.leaf("wpe", Shape::of(a.max_positions, h)));
  t.open("h", -1, Module::Kind::module_list);
  for (int64_t i = 0; i < a.layers; ++i) {
    model.blocks.push_back(t.open("", static_cast<int32_t>(i)));
    t.leaf("ln_1", Shape::of(h), h);
    t.open("attn");
    t.leaf("c_attn", Shape::of(h, 3 * h), 3 * h);  // Conv1D: [in, out]
    t.leaf("c_proj", Shape::of(h, h), h);
    t.close();
    t.leaf("ln_2", Shape::of(h), h);
    t.open("mlp");
    t.leaf("c_fc", Shape::of(h, a.ffn), a.ffn);
    t.leaf("c_proj", Shape::of(a.ffn, h), h);
    t.close();
    t.close();
  }
  t.close();
  model.head.push_back(t.leaf("ln_f", Shape::of(h), h));
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
