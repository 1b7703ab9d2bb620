#include "sim/config/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "sim/base/escape.h"
#include "sim/base/spelling.h"

namespace shardsim {
namespace {

constexpr int64_t kMostLayers = 100'000;
constexpr int64_t kMostHidden = 1 << 20;
constexpr int64_t kMostFfn = 1 << 22;
constexpr int64_t kMostHeads = 1 << 16;
constexpr int64_t kMostVocab = 1 << 24;
constexpr int64_t kMostPositions = 1 << 24;
constexpr int64_t kMostFeatures = 1 << 24;  // of a linear, a side of a bare parameter
constexpr size_t kMostParameters = 100'000;
constexpr int64_t kMostExperts = 1024;

constexpr std::string_view kModelTypes[] = {"bag",     "gemma",   "gpt2", "llama",
                                            "mistral", "mixtral", "mpt",  "qwen2",
                                            "qwen3",   "stack",   "t5",   "transformer"};

using Keys = std::vector<std::string_view>;

const Keys& shape_keys(std::string_view type) {
  static const Keys llama = {"vocab_size",        "hidden_size",         "intermediate_size",
                             "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                             "head_dim",          "tie_word_embeddings", "attention_bias",
                             "mlp_bias",          "hidden_act"};
  static const Keys mistral = {"vocab_size",        "hidden_size",         "intermediate_size",
                               "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                               "head_dim",          "tie_word_embeddings", "hidden_act"};
  static const Keys qwen3 = {"vocab_size",        "hidden_size",         "intermediate_size",
                             "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                             "head_dim",          "tie_word_embeddings", "attention_bias",
                             "hidden_act"};
  static const Keys mixtral = {"vocab_size",        "hidden_size",         "intermediate_size",
                               "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                               "head_dim",          "tie_word_embeddings", "hidden_act",
                               "num_local_experts", "num_experts_per_tok"};
  static const Keys gemma = {"vocab_size",        "hidden_size",         "intermediate_size",
                             "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                             "head_dim",          "tie_word_embeddings", "attention_bias",
                             "hidden_act",        "hidden_activation"};
  static const Keys mpt = {"vocab_size", "d_model",         "n_layers",           "n_heads",
                           "no_bias",    "expansion_ratio", "tie_word_embeddings"};
  static const Keys t5 = {"vocab_size",
                          "d_model",
                          "d_kv",
                          "d_ff",
                          "num_layers",
                          "num_decoder_layers",
                          "num_heads",
                          "relative_attention_num_buckets",
                          "feed_forward_proj",
                          "tie_word_embeddings"};
  static const Keys gpt2 = {
      "vocab_size",          "n_positions",        "n_embd", "n_layer", "n_head", "n_inner",
      "tie_word_embeddings", "activation_function"};
  static const Keys stack = {"hidden_size", "blocks",    "bias",   "input_grad",
                             "root_first",  "root_last", "unused", "buffers"};
  static const Keys bag = {"hidden_size", "blocks",     "scale",
                           "input_grad",  "root_first", "root_last"};
  static const Keys transformer = {"vocab_size", "max_seq_len", "dim",
                                   "n_layers",   "n_heads",     "weight_tying"};
  if (type == "gpt2") return gpt2;
  if (type == "transformer") return transformer;
  if (type == "mixtral") return mixtral;
  if (type == "gemma") return gemma;
  if (type == "mpt") return mpt;
  if (type == "t5") return t5;
  if (type == "stack") return stack;
  if (type == "bag") return bag;
  if (type == "llama") return llama;
  if (type == "qwen3") return qwen3;
  return mistral;  // qwen2's fields are mistral's
}

// Fields of published config.json files that are read over.
const Keys& ignored_fields() {
  static const Keys keys = {
      // what the file is about
      "_name_or_path", "name_or_path", "architectures", "auto_map", "transformers_version",
      "torch_dtype", "dtype", "tokenizer_class", "task_specific_params", "use_cache",
      "output_attentions", "output_hidden_states", "return_dict", "torchscript", "use_bfloat16",
      "unsloth_version", "unsloth_fixed", "_attn_implementation", "attn_implementation",
      // tokens and text generation
      "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id",
      "mask_token_id", "unk_token_id", "decoder_start_token_id", "id2label", "label2id",
      "problem_type", "finetuning_task", "max_length", "min_length", "do_sample", "temperature",
      "top_k", "top_p", "num_beams", "repetition_penalty", "prefix", "is_decoder",
      "is_encoder_decoder", "chunk_size_feed_forward",
      // of a mixture's loss, and of T5's training
      "router_aux_loss_coef", "router_jitter_noise", "output_router_logits", "dropout_rate",
      "initializer_factor", "max_seq_len", "attn_config", "init_config", "init_device", "emb_pdrop",
      "learned_pos_emb", "logit_scale", "norm_type", "verbose", "embedding_fraction", "resid_pdrop",
      "relative_attention_max_distance", "n_positions",
      // constants inside a kernel
      "initializer_range", "rms_norm_eps", "layer_norm_epsilon", "rope_theta", "rope_scaling",
      "rope_parameters", "rope_interleaved", "partial_rotary_factor", "attn_pdrop", "embd_pdrop",
      "resid_pdrop", "attention_dropout", "hidden_dropout", "scale_attn_weights",
      "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn",
      // a causal mask costs what it costs: the window is not used by the kernels simulated here
      "sliding_window", "use_sliding_window", "max_window_layers", "layer_types",
      // tensor parallelism of the checkpoint, context length, and heads this model does not have
      "pretraining_tp", "max_position_embeddings", "n_ctx", "summary_activation",
      "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
      "gradient_checkpointing", "add_cross_attention"};
  return keys;
}

// A JSON null stands for an absent field.
std::optional<Value> present(const Map& map, std::string_view key) {
  std::optional<Value> value = map.find(key);
  if (value && value->is_null()) return std::nullopt;
  return value;
}

int64_t whole_or(const Map& map, std::string_view key, int64_t high, int64_t otherwise) {
  const std::optional<Value> value = present(map, key);
  return value ? value->whole(1, high) : otherwise;
}

bool flag_or(const Map& map, std::string_view key, bool otherwise) {
  const std::optional<Value> value = present(map, key);
  return value ? value->boolean() : otherwise;
}

void read_activation(const Map& map, std::string_view key, const Keys& known) {
  const std::optional<Value> value = present(map, key);
  if (!value) return;
  for (std::string_view name : known)
    if (value->is_word(name)) return;
  value->fail_expected(fmt::format("one of {}", fmt::join(known, ", ")));
}

void read_llama(const Map& map, Architecture& a) {
  a.family = Family::llama;
  a.vocab = map.at("vocab_size").whole(1, kMostVocab);
  a.hidden = map.at("hidden_size").whole(1, kMostHidden);
  a.ffn = map.at("intermediate_size").whole(1, kMostFfn);
  a.layers = map.at("num_hidden_layers").whole(1, kMostLayers);
  a.heads = map.at("num_attention_heads").whole(1, kMostHeads);
  a.kv_heads = whole_or(map, "num_key_value_heads", kMostHeads, a.heads);
  if (a.heads % a.kv_heads != 0)
    map.at("num_key_value_heads")
        .fail(fmt::format("{} key-value heads do not divide {} attention heads", a.kv_heads,
                          a.heads));
  if (const std::optional<Value> value = present(map, "head_dim")) {
    a.head_dim = value->whole(1, kMostHeads);
  } else {
    if (a.hidden % a.heads != 0)
      map.at("num_attention_heads")
          .fail(fmt::format("{} heads do not divide hidden_size {}", a.heads, a.hidden),
                "give head_dim where heads x head_dim is not hidden_size");
    a.head_dim = a.hidden / a.heads;
  }
  a.tied = flag_or(map, "tie_word_embeddings", false);
  const bool attention_bias = flag_or(map, "attention_bias", false);
  a.qkv_bias = attention_bias || a.model_type == "qwen2";
  a.o_bias = attention_bias;
  a.mlp_bias = flag_or(map, "mlp_bias", false);
  a.qk_norm = a.model_type == "qwen3";
  a.rope = RopeForm::complex;
  if (a.model_type == "gemma") {
    a.tied = flag_or(map, "tie_word_embeddings", true);
    a.gelu = true;
    read_activation(map, "hidden_act", {"gelu", "gelu_pytorch_tanh"});
    read_activation(map, "hidden_activation", {"gelu", "gelu_pytorch_tanh"});
    return;
  }
  read_activation(map, "hidden_act", {"silu"});
  if (a.model_type != "mixtral") return;
  a.experts = map.at("num_local_experts").whole(1, kMostExperts);
  const Value topk = map.at("num_experts_per_tok", "experts that a token runs through");
  a.topk = topk.whole(1, kMostExperts);
  if (a.topk > a.experts)
    topk.fail(fmt::format("a token cannot run through {} of {} experts", a.topk, a.experts));
}

// MPT with ALiBi, whose bias the attention kernel adds, and without biases of its own.
void read_mpt(const Map& map, Architecture& a) {
  a.family = Family::gpt2;
  a.vocab = map.at("vocab_size").whole(1, kMostVocab);
  a.hidden = map.at("d_model").whole(1, kMostHidden);
  a.layers = map.at("n_layers").whole(1, kMostLayers);
  a.heads = a.kv_heads = map.at("n_heads").whole(1, kMostHeads);
  if (a.hidden % a.heads != 0)
    map.at("n_heads").fail(fmt::format("{} heads do not divide d_model {}", a.heads, a.hidden));
  a.head_dim = a.hidden / a.heads;
  a.ffn = whole_or(map, "expansion_ratio", 64, 4) * a.hidden;
  a.tied = flag_or(map, "tie_word_embeddings", true);
  a.no_bias = true;
  if (const std::optional<Value> v = present(map, "no_bias"); v && !v->boolean())
    v->fail("this build plays MPT without biases only");
}

// T5 of the first release: ReLU, one table of relative positions for each side.
void read_t5(const Map& map, Architecture& a) {
  a.family = Family::t5;
  a.vocab = map.at("vocab_size").whole(1, kMostVocab);
  a.hidden = map.at("d_model").whole(1, kMostHidden);
  a.ffn = map.at("d_ff").whole(1, kMostFfn);
  a.layers = map.at("num_layers").whole(1, kMostLayers);
  if (const std::optional<Value> v = present(map, "num_decoder_layers");
      v && v->whole(1, kMostLayers) != a.layers)
    v->fail(fmt::format("this build plays as many layers on both sides, here {}", a.layers));
  a.heads = a.kv_heads = map.at("num_heads").whole(1, kMostHeads);
  a.head_dim = map.at("d_kv", "features of a head").whole(1, kMostHeads);
  a.relative_buckets = whole_or(map, "relative_attention_num_buckets", kMostHeads, 32);
  a.tied = flag_or(map, "tie_word_embeddings", true);
  a.norm = NormForm::hf;
  read_activation(map, "feed_forward_proj", {"relu"});
}

void read_gpt2(const Map& map, Architecture& a) {
  a.family = Family::gpt2;
  a.vocab = map.at("vocab_size").whole(1, kMostVocab);
  a.hidden = map.at("n_embd").whole(1, kMostHidden);
  a.layers = map.at("n_layer").whole(1, kMostLayers);
  a.heads = a.kv_heads = map.at("n_head").whole(1, kMostHeads);
  if (a.hidden % a.heads != 0)
    map.at("n_head").fail(fmt::format("{} heads do not divide n_embd {}", a.heads, a.hidden));
  a.head_dim = a.hidden / a.heads;
  a.max_positions = map.at("n_positions").whole(1, kMostPositions);
  a.ffn = whole_or(map, "n_inner", kMostFfn, 4 * a.hidden);
  a.tied = flag_or(map, "tie_word_embeddings", true);
  a.qkv_bias = a.o_bias = a.mlp_bias = true;
  read_activation(map, "activation_function",
                  {"gelu_new", "gelu", "gelu_fast", "gelu_pytorch_tanh"});
}

// ModelArgs of torch.testing's Transformer; no dropout, a causal mask.
void read_transformer(const Map& map, Architecture& a) {
  a.family = Family::transformer;
  a.vocab = map.at("vocab_size").whole(1, kMostVocab);
  a.hidden = map.at("dim").whole(1, kMostHidden);
  a.layers = map.at("n_layers").whole(1, kMostLayers);
  a.heads = a.kv_heads = map.at("n_heads").whole(1, kMostHeads);
  if (a.hidden % a.heads != 0)
    map.at("n_heads").fail(fmt::format("{} heads do not divide dim {}", a.heads, a.hidden));
  a.head_dim = a.hidden / a.heads;
  a.max_positions = map.at("max_seq_len").whole(1, kMostPositions);
  a.ffn = 4 * a.hidden;
  a.tied = flag_or(map, "weight_tying", true);
}

LinearShape read_linear(const Value& value) {
  const std::vector<Value> sides = value.list("two sizes, [out, in]");
  if (sides.size() != 2)
    value.fail(fmt::format("expected two sizes, [out, in], got {}", sides.size()));
  return {sides[0].whole(1, kMostFeatures), sides[1].whole(1, kMostFeatures)};
}

// The sizes must chain: what a linear gives, the next one takes.
void connect(const Value& value, const LinearShape& linear, int64_t& features) {
  if (linear.in != features)
    value.fail(fmt::format("takes {} features, but gets {}", linear.in, features),
               "a linear is [out, in]");
  features = linear.out;
}

void read_stack_or_bag(const Map& map, Architecture& a) {
  a.family = a.model_type == "stack" ? Family::stack : Family::bag;
  a.hidden = map.at("hidden_size", "features of the input").whole(1, kMostHidden);
  int64_t features = a.hidden;
  if (const std::optional<Value> value = map.find("root_first")) {
    a.root_first = read_linear(*value);
    connect(*value, a.root_first, features);
  }
  size_t count = 0;
  const auto bounded = [&](const Value& value) {
    if (++count > kMostParameters)
      value.fail(fmt::format("the model has more than {} parameters", kMostParameters));
  };
  for (const Value& block : map.at("blocks").list("blocks", 1)) {
    if (a.family == Family::stack) {
      std::vector<LinearShape>& linears = a.linear_blocks.emplace_back();
      for (const Value& value : block.list("linears, [out, in]", 1)) {
        bounded(value);
        linears.push_back(read_linear(value));
        connect(value, linears.back(), features);
      }
    } else {
      std::vector<std::vector<int64_t>>& shapes = a.bag_blocks.emplace_back();
      for (const Value& value : block.list("shapes", 1)) {
        bounded(value);
        std::vector<int64_t>& shape = shapes.emplace_back();
        for (const Value& side : value.list("sizes", 1))
          shape.push_back(side.whole(1, kMostFeatures));
        if (shape.size() > 3) value.fail("a parameter has at most three dimensions here");
      }
    }
  }
  if (const std::optional<Value> value = map.find("root_last")) {
    a.root_last = read_linear(*value);
    connect(*value, a.root_last, features);
  }
  if (const std::optional<Value> value = map.find("unused"))
    for (const Value& linear : value->list("linears that no forward calls, [out, in]")) {
      bounded(linear);
      a.unused.push_back(read_linear(linear));
    }
  if (const std::optional<Value> value = map.find("buffers"))
    for (const Value& numel : value->list("elements of the root's buffers")) {
      bounded(numel);
      a.buffers.push_back(numel.whole(1, kMostFeatures));
    }
  a.layers = static_cast<int64_t>(a.family == Family::stack ? a.linear_blocks.size()
                                                            : a.bag_blocks.size());
  a.bias = flag_or(map, "bias", false);
  a.scale = flag_or(map, "scale", false);
  a.input_grad = flag_or(map, "input_grad", false);
  a.naming = Naming::recorder;
}

void read_shape(const Map& map, Architecture& a) {
  if (a.model_type == "gpt2")
    read_gpt2(map, a);
  else if (a.model_type == "mpt")
    read_mpt(map, a);
  else if (a.model_type == "t5")
    read_t5(map, a);
  else if (a.model_type == "transformer")
    read_transformer(map, a);
  else if (a.model_type == "stack" || a.model_type == "bag")
    read_stack_or_bag(map, a);
  else
    read_llama(map, a);
}

// How the model is written; only for the families that have it.
void read_form(const Map& map, Architecture& a) {
  const auto decoder_only = [&](std::string_view key) {
    if (a.family != Family::llama && map.has(key))
      map.fail_key(key, fmt::format("a {} model has no such choice", a.model_type));
  };
  for (std::string_view key : {"norm", "rope", "rope_positions", "repeat_kv", "attention"})
    decoder_only(key);
  for (std::string_view key : {"dropout"})
    if (a.family != Family::gpt2 && a.family != Family::t5 && map.has(key))
      map.fail_key(key, fmt::format("a {} model is played without dropout", a.model_type));
  if (map.has("sdpa") && (!takes_tokens(a.family) || a.family == Family::t5))
    map.fail_key(
        "sdpa", fmt::format("a {} model does not call scaled_dot_product_attention", a.model_type));
  if (const std::optional<Value> value = map.find("sdpa"))
    a.sdpa = value->choice<Sdpa>({{"best", Sdpa::best},
                                  {"flash", Sdpa::flash},
                                  {"efficient", Sdpa::efficient},
                                  {"math", Sdpa::math}});
  if (a.family != Family::llama && a.sdpa == Sdpa::math)
    map.at("sdpa").fail("this build plays the math kernel in Llama's attention only");
  if (const std::optional<Value> value = map.find("attention")) {
    a.attention = value->choice<AttentionForm>(
        {{"sdpa", AttentionForm::sdpa}, {"eager", AttentionForm::eager}});
    if (a.attention == AttentionForm::eager && map.has("sdpa"))
      map.fail_key("sdpa", "eager attention does not call scaled_dot_product_attention");
  }
  if (const std::optional<Value> value = map.find("dropout"))
    a.dropout = value->decimal(0, 0.999, "the probability that an element is dropped");
  if (const std::optional<Value> value = map.find("norm"))
    a.norm = value->choice<NormForm>({{"fused", NormForm::fused}, {"hf", NormForm::hf}});
  if (const std::optional<Value> value = map.find("rope"))
    a.rope = value->choice<RopeForm>(
        {{"complex", RopeForm::complex}, {"hf", RopeForm::hf}, {"none", RopeForm::none}});
  if (const std::optional<Value> value = map.find("rope_positions")) {
    if (a.rope == RopeForm::none) map.fail_key("rope_positions", "rope: none has no table");
    a.rope_positions = value->whole(0, int64_t{1} << 24, "positions of the table; 0: not counted");
  }
  if (const std::optional<Value> value = map.find("repeat_kv")) a.repeat_kv = value->boolean();
  if (const std::optional<Value> value = map.find("name")) a.name = printable(value->text());
}

constexpr std::string_view kFormKeys[] = {"name",      "norm",      "rope", "rope_positions",
                                          "repeat_kv", "attention", "sdpa", "dropout"};

Keys with_form_keys(Keys keys) {
  keys.insert(keys.end(), std::begin(kFormKeys), std::end(kFormKeys));
  return keys;
}

std::string read_model_type(const Value& value, bool file) {
  const std::string type(value.word());
  if (type == "gemma2" || type == "gemma3_text" || type == "gemma3")
    value.fail(fmt::format("this build cannot play {}", type),
               "its soft-capped or windowed attention and two more norms a layer are not modelled; "
               "gemma is");
  for (std::string_view known : kModelTypes) {
    // These are no config.json of Hugging Face.
    if (file && (known == "stack" || known == "bag" || known == "transformer")) continue;
    if (type == known) return type;
  }
  value.fail_expected(
      file ? "a model_type that this build knows" : "a model type that this build knows",
      file ? "known are gemma, gpt2, llama, mistral, mixtral, mpt, qwen2, qwen3, t5"
           : "known are bag, gemma, gpt2, llama, mistral, mixtral, mpt, qwen2, qwen3, stack, t5, "
             "transformer");
}

Architecture read_config_value(const Value& value, const std::string& name) {
  if (!value.is_map()) value.fail_expected("a map of a model's fields");
  // The type decides which other fields are known, so it is looked for first.
  Architecture a;
  a.model_type = read_model_type(
      Map(value, Map::any_key).at("model_type", "this file is no Hugging Face config.json"), true);
  a.name = name;
  Keys known = shape_keys(a.model_type);
  known.push_back("model_type");
  const Keys& ignored = ignored_fields();
  known.insert(known.end(), ignored.begin(), ignored.end());
  read_shape(
      Map(value, known,
          fmt::format("what this field does to a {} model is not known here; remove it if it "
                      "changes no shape",
                      a.model_type)),
      a);
  return a;
}

}  // namespace

std::optional<std::string> file_beside(const std::string& path, const std::string& scenario) {
  namespace fs = std::filesystem;
  const fs::path wanted = path;
  if (wanted.is_absolute()) return path;
  fs::path folder = fs::path(scenario).parent_path();
  std::error_code error;
  constexpr int kFoldersUp = 4;
  for (int i = 0; i < kFoldersUp; ++i) {
    const fs::path candidate = (folder / wanted).lexically_normal();
    if (fs::exists(candidate, error)) return candidate.string();
    folder = folder.empty() ? ".." : folder / "..";
  }
  return std::nullopt;
}

std::string find_beside(const Value& value, const std::string& scenario) {
  const std::string wanted = value.text();
  if (const std::optional<std::string> found = file_beside(wanted, scenario)) return *found;
  const std::filesystem::path beside = std::filesystem::path(scenario).parent_path() / wanted;
  value.fail(fmt::format("there is no file {}", quoted_for_message(beside.string())),
             "a path is relative to the scenario's folder or one of the three above it");
}

Architecture read_hf_config(std::string_view text, const std::string& file,
                            const std::string& name) {
  return read_config_value(Value(std::make_shared<const Document>(parse_json(text, file))), name);
}

Architecture read_preset(const Value& value) {
  Keys names;
  for (const ModelPreset& preset : model_presets()) {
    if (value.is_word(preset.name))
      return read_hf_config(preset.config, fmt::format("models/{}/config.json", preset.name),
                            std::string(preset.name));
    names.push_back(preset.name);
  }
  value.fail_expected("the name of a model",
                      value.is_scalar() ? spelling_hint(value.word(), names, "models") : "");
}

Architecture read_model(const Value& value, const std::string& file) {
  const Map any(value, Map::any_key);
  const bool preset = any.has("preset");
  const bool config = any.has("hf_config");
  const bool type = any.has("model_type");
  if (preset + config + type != 1)
    value.fail(
        preset + config + type == 0
            ? "one of the keys preset, hf_config, model_type is missing"
            : "only one of the keys preset, hf_config, model_type can be given",
        "a shipped model, a Hugging Face config.json, or the fields of one written out here");
  if (preset) {
    const Map map(value, with_form_keys({"preset"}));
    Architecture a = read_preset(map.at("preset"));
    read_form(map, a);
    return a;
  }
  if (config) {
    const Map map(value, with_form_keys({"hf_config"}));
    const std::string path = find_beside(map.at("hf_config"), file);
    std::filesystem::path stem(path);
    stem = stem.stem() == "config" ? stem.parent_path().filename() : stem.stem();
    Architecture a = read_hf_config(read_text_file(path), path, stem.string());
    read_form(map, a);
    return a;
  }
  Architecture a;
  a.model_type = read_model_type(any.at("model_type"), false);
  a.name = a.model_type;
  Keys known = with_form_keys(shape_keys(a.model_type));
  known.push_back("model_type");
  known.push_back("naming");
  const Map map(value, known);
  read_shape(map, a);
  read_form(map, a);
  if (const std::optional<Value> naming = map.find("naming"))
    a.naming = naming->choice<Naming>(
        {{"hugging_face", Naming::hugging_face}, {"recorder", Naming::recorder}});
  return a;
}

}  // namespace shardsim
