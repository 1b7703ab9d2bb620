#include "sim/study/measured_scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "sim/config/model.h"
#include "sim/study/published_gpu.h"

namespace shardsim {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// "2024-03-28" as 202403; a year alone as its January; 0: no date.
int month_of(std::string_view date) {
  int year = 0, month = 1;
  if (date.size() < 4 || std::from_chars(date.data(), date.data() + 4, year).ec != std::errc{})
    return 0;
  if (year < 1990) return 0;
  if (date.size() >= 7 && date[4] == '-') std::from_chars(date.data() + 5, date.data() + 7, month);
  return year * 100 + month;
}

// "Llama-3-8B", "llama3-8b": as tables write names.
std::string letters_of(std::string_view name) {
  std::string out;
  for (char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.')
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

constexpr std::string_view kFrameworks =
    "torchtitan, Composer, fms-fsdp, torchtune, DeepSpeed, or PyTorch with FSDP2, FSDP1 or DDP";
constexpr std::string_view kStrategies =
    "full_shard, grad_op, hsdp, ddp, zero1, zero2, zero3, none";
constexpr int kNewest = 999912;  // of a row without a date
constexpr double kMostCounted = 1e9;
constexpr std::string_view kTorchtitanH100 = "h100-sxm5-96gb";  // that its benchmarks ran on

// Collects a scenario's sections, or the reason why there is none.
class Writer {
 public:
  explicit Writer(const MeasuredRow& row)
      : r_(row), dated_(month_of(row.date) > 0), month_(dated_ ? month_of(row.date) : kNewest) {}

  ExpressedRow express() {
    look_up();
    if (out_.left_out.empty()) refuse();
    if (out_.left_out.empty()) machine();
    if (out_.left_out.empty()) program();
    if (!out_.left_out.empty()) return out_;
    out_.yaml = fmt::format("shardsim: 1\nname: {}\nmodel: {{{}}}\ncluster: {{{}}}\ntraining:\n{}",
                            name(), model_, cluster_, training_);
    return out_;
  }

 private:
  // The id, where it is a plain word.
  std::string name() const {
    const auto plain = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-';
    };
    const bool word = !r_.id.empty() && r_.id.size() <= 100 &&
                      std::isalpha(static_cast<unsigned char>(r_.id[0])) != 0 &&
                      std::all_of(r_.id.begin(), r_.id.end(), plain);
    return word ? r_.id : "row";
  }

  // A model without its sizes may be a name that is known.
  void look_up() {
    if (r_.layers || r_.hidden || r_.heads || r_.ffn || r_.vocab) return;
    for (const ModelPreset& p : model_presets()) {
      if (letters_of(p.name) != letters_of(r_.model)) continue;
      const Architecture a = read_hf_config(p.config, std::string(p.name), std::string(p.name));
      if (a.family != Family::llama && a.family != Family::gpt2) return;
      const auto number = [](int64_t n) { return static_cast<double>(n); };
      r_.layers = number(a.layers), r_.hidden = number(a.hidden), r_.heads = number(a.heads);
      r_.kv_heads = number(a.kv_heads), r_.ffn = number(a.ffn), r_.vocab = number(a.vocab);
      preset_ = a;
      return;
    }
  }

  // The preset by its name, with the way its framework writes it.
  bool named(std::string_view norm, std::string_view rope, bool repeat_kv) {
    if (!preset_) return false;
    model_ = fmt::format("preset: {}", preset_->name);
    if (preset_->family == Family::llama)
      model_ += fmt::format(", norm: {}, rope: {}, repeat_kv: {}", norm, rope,
                            repeat_kv && preset_->kv_heads != preset_->heads);
    return true;
  }

  void leave_out(std::string why) {
    if (out_.left_out.empty()) out_.left_out = std::move(why);
  }
  void assume(std::string what) { out_.assumed.push_back(std::move(what)); }
  void training(std::string_view key, const std::string& value) {
    training_ += fmt::format("  {}: {}\n", key, value);
  }

  void refuse() {
    if (!r_.tokens_per_s && !r_.step_s) return leave_out("no rate and no step time");
    if (r_.tensor != 1 || r_.pipeline != 1 || r_.context != 1)
      return leave_out("tensor, pipeline and context parallelism are not played");
    const std::string& f = r_.framework;
    for (std::string_view other : {"YaFSDP", "SimpleFSDP", "Megatron", "PaddlePaddle", "aot_eager"})
      if (has(f, other)) return leave_out(fmt::format("{} is not played", other));
    for (std::string_view type : {"fp8", "nvfp4", "mxfp8", "int8"})
      if (has(r_.compute_dtype, type)) return leave_out(fmt::format("{} is not played", type));
    if (has(r_.model, "MoE") || has(r_.model, "-a3b"))
      return leave_out("mixtures of experts over expert-parallel ranks are not played");
    for (std::string_view word : {"LoRA", "offload", "8-bit", "deterministic mode on"})
      if (has(r_.notes, word)) return leave_out(fmt::format("its notes say '{}'", word));
    const std::pair<const std::optional<double>&, std::string_view> needed[] = {
        {r_.layers, "n_layers"},
        {r_.hidden, "d_model"},
        {r_.heads, "n_heads"},
        {r_.ffn, "d_ff"},
        {r_.vocab, "vocab"}};
    for (const auto& [value, name] : needed)
      if (!value)
        return leave_out(
            fmt::format("{} is not stated, its model none of `shardsim list models`", name));
    if (!r_.micro_batch) return leave_out("micro_batch is not stated");
    if (!r_.gpus && !has(f, "torchtitan")) return leave_out("n_gpus is not stated");
    // What is counted is whole, and small enough for any arithmetic below.
    const std::pair<const std::optional<double>&, std::string_view> counts[] = {
        {r_.gpus, "n_gpus"},           {r_.gpus_per_node, "gpus_per_node"},
        {r_.seq_len, "seq_len"},       {r_.micro_batch, "micro_batch"},
        {r_.grad_accum, "grad_accum"}, {r_.layers, "n_layers"}};
    for (const auto& [value, name] : counts)
      if (value && !(*value >= 1 && *value <= kMostCounted && std::floor(*value) == *value))
        return leave_out(fmt::format("{} {} is no whole number above 0", name, *value));
    if (!r_.seq_len && !has(f, "torchtitan") && !has(r_.framework, "tt "))
      return leave_out("seq_len is not stated");
  }

  void machine() {
    const std::optional<PublishedGpu> known = published_gpu(r_.gpu);
    if (!known)
      return leave_out(r_.gpu.empty() ? "gpu is not stated"
                                      : fmt::format("no catalogue entry for GPU {}", r_.gpu));
    std::string gpu(known->gpu), assumed(known->assumed);
    if (r_.gpu == "H100" && has(r_.framework, "torchtitan")) {
      gpu = kTorchtitanH100;
      assumed = "the 96 GB part of 500 W";
    }
    if (!assumed.empty()) assume(fmt::format("{} is {}", r_.gpu, assumed));
    gpu_ = gpu;
    if (!r_.gpus) assume("8 GPUs, as torchtitan's commands start");
    world_ = static_cast<int64_t>(r_.gpus.value_or(8));
    int64_t per_node = static_cast<int64_t>(r_.gpus_per_node.value_or(8));
    if (!r_.gpus_per_node && world_ > 8) assume("8 GPUs a node");
    per_node = std::min(per_node, world_);
    if (per_node < 1 || world_ % per_node != 0) return leave_out("GPUs do not fill nodes");
    const bool ampere = gpu.starts_with("a100");
    const bool hopper = gpu.starts_with("h100") || gpu.starts_with("h200");
    const std::string base = ampere              ? "dgx-a100"
                             : hopper            ? "dgx-h100"
                             : gpu == "b200-sxm" ? "dgx-b200"
                             : gpu == "gb200"    ? "gb200-nvl72"
                                                 : "";
    std::string links;
    if (world_ > per_node) links = network(ampere);
    if (base.empty() && world_ > 1) return leave_out(fmt::format("no system of {} is known", gpu));
    if (world_ == 1 || base.empty()) {
      cluster_ = fmt::format("gpu: {}, gpus_per_node: 1, nodes: 1", gpu);
      return;
    }
    cluster_ = fmt::format("preset: {}, gpu: {}, gpus_per_node: {}, nodes: {}{}", base, gpu,
                           per_node, world_ / per_node, links);
  }

  // The links between nodes, where the row states a network; the preset's otherwise.
  std::string network(bool ampere) {
    const std::string& text = r_.interconnect;
    const auto node = [](int count, int gbits) {
      return fmt::format(", nics: {{count: {}, rate: {} Gb/s}}", count, gbits);
    };
    if (has(text, "400 Gbps node")) return node(4, 100);
    if (has(text, "800 Gbps node")) return node(8, 100);
    if (has(text, "1600 Gbps")) return node(8, 200);
    if (has(text, "400 Gb/s per GPU") || has(text, "400 Gb/s CX-7")) return "";
    if (has(text, "HDR 200")) return "";
    if (text.empty() || text == "NVLink" || has(text, "DGX H100")) {
      if (has(r_.framework, "Composer") && ampere) {
        assume("RoCE of 1600 Gb/s a node between nodes");
        return node(8, 200);
      }
      assume(fmt::format("{} between nodes", ampere ? "8 x 200 Gb/s" : "8 x 400 Gb/s"));
      return "";
    }
    leave_out(fmt::format("its network, '{}', is none that is known", text));
    return "";
  }

  void program() {
    const std::string& f = r_.framework;
    seq_ = static_cast<int64_t>(r_.seq_len.value_or(8192));
    if (!r_.seq_len) assume("sequence 8192, torchtitan's default");
    micro_ = static_cast<int64_t>(*r_.micro_batch);
    batches();
    if (!out_.left_out.empty()) return;
    compiled_ = r_.compile == "true";
    if (r_.compile.empty() && has(f, "torchtitan")) assume("not compiled");
    if (has(f, "Composer"))
      composer();
    else if (has(f, "torchtitan") || has(f, "FSDP2"))
      torchtitan();
    else if (has(f, "fms-fsdp"))
      fms();
    else if (has(f, "FSDP1") || has(f, "DDP") || has(f, "DeepSpeed") || f == "PyTorch" ||
             has(f, "torchtune") || has(f, "PyTorch FSDP"))
      plain();
    else
      return leave_out(fmt::format("framework '{}' is none that is known: {}", f, kFrameworks));
    if (out_.left_out.empty() && r_.tier != "A" && !r_.tier.empty())
      assume(fmt::format("tier {}: its source leaves up to {} things unsaid", r_.tier,
                         r_.tier == "B" ? "two" : "many"));
  }

  void batches() {
    accum_ = static_cast<int64_t>(r_.grad_accum.value_or(1));
    if (!r_.global_batch_tokens || !r_.grad_accum) {
      if (r_.global_batch_tokens) {
        const double exact = *r_.global_batch_tokens / static_cast<double>(world_ * seq_ * micro_);
        accum_ = std::max<int64_t>(1, std::llround(exact));
      }
      return;
    }
    // grad_accum is rounded up: the last micro-batch may be ragged.
    const double exact = *r_.global_batch_tokens / static_cast<double>(world_ * seq_ * micro_);
    if (exact > 0 && exact < static_cast<double>(accum_)) {
      const double last = exact - static_cast<double>(accum_ - 1);
      if (last > 0) out_.last_micro_batch = last;
    }
  }

  void gpt2() {
    if (named("hf", "hf", false)) return;
    model_ = fmt::format(
        "model_type: gpt2, vocab_size: {}, n_positions: {}, n_embd: {}, n_layer: {}, n_head: {}, "
        "n_inner: {}, tie_word_embeddings: true",
        *r_.vocab, seq_, *r_.hidden, *r_.layers, *r_.heads, *r_.ffn);
  }

  void llama(std::string_view norm, std::string_view rope, bool repeat_kv) {
    if (named(norm, rope, repeat_kv)) return;
    const bool qwen3 = has(r_.model, "qwen3");
    model_ = fmt::format(
        "model_type: {}, vocab_size: {}, hidden_size: {}, intermediate_size: {}, "
        "num_hidden_layers: {}, num_attention_heads: {}, num_key_value_heads: {}, {}norm: {}, "
        "rope: {}, repeat_kv: {}",
        qwen3 ? "qwen3" : "llama", *r_.vocab, *r_.hidden, *r_.ffn, *r_.layers, *r_.heads,
        r_.kv_heads.value_or(*r_.heads), qwen3 ? "head_dim: 128, " : "", norm, qwen3 ? "hf" : rope,
        repeat_kv && r_.kv_heads && *r_.kv_heads != *r_.heads ? "true" : "false");
  }

  void common(std::string_view strategy) {
    training("strategy", std::string(strategy));
    training("seq_len", fmt::format("{}", seq_));
    training("micro_batch", fmt::format("{}", micro_));
    if (accum_ > 1) training("grad_accum", fmt::format("{}", accum_));
    if (dated_)
      training("software", fmt::format("\"{:04}-{:02}\"", month_ / 100, month_ % 100));
    else
      assume(
          "no version_date: software of the calibration's date, its framework's newest defaults");
  }

  void compile(bool loss) {
    if (compiled_) training("compile", loss ? "blocks_and_loss" : "blocks");
  }

  // "5 of 48 layers" as every 10th; 0: not so.
  static std::optional<int64_t> some_layers(const std::string& text) {
    int64_t some = 0, all = 0;
    const size_t of = text.find(" of ");
    if (of == std::string::npos || !has(text, "layers")) return std::nullopt;
    std::from_chars(text.data(), text.data() + of, some);
    std::from_chars(text.data() + of + 4, text.data() + text.size(), all);
    if (some < 1 || all < some) return 0;
    const int64_t every = all / some;
    return (all + every - 1) / every == some ? every : 0;
  }

  void checkpointing(std::string_view selective) {
    const std::string& c = r_.checkpointing;
    const std::string& notes = r_.notes;
    std::string mode;
    if (c == "none")
      mode = "none";
    else if (c == "full")
      mode = "full";
    else if (const auto every = some_layers(c); every && *every > 0)
      mode = fmt::format("every_k, every: {}", *every);
    else if (every)
      return leave_out(fmt::format("checkpointing of {} is no even choice", c));
    else if (has(c, "(op)"))
      mode = "selective_op";
    else if (has(c, "layer") || has(c, "every 2nd"))
      mode = "every_k, every: 2";
    else if (has(c, "every n-th") && has(notes, "every 2nd/3rd")) {
      mode = "every_k, every: 2";
      assume("every second block is recomputed");
    } else if (has(c, "selective")) {
      mode = selective;
      assume(fmt::format("selective checkpointing is {}", selective));
    } else if (c.empty()) {
      mode = selective;
      assume(fmt::format("checkpointing is {}", selective));
    } else {
      return leave_out(fmt::format(
          "checkpointing '{}' is none of none, full, selective (op), every 2nd layer", c));
    }
    if (mode != "none") training("activation_checkpointing", fmt::format("{{mode: {}}}", mode));
  }

  void attention(std::string_view backend) { training("attention_backend", std::string(backend)); }

  void torchtitan() {
    const bool fsdp1 = has(r_.framework, "FSDP1");
    const bool late = !dated_ || (month_ >= 202507 && r_.date >= "2025-07-28");
    // Compiled, the copies of K and V are fused away.
    if (compiled_ && r_.kv_heads != r_.heads) assume("compiled, K and V are not expanded");
    llama(month_ < 202508 ? "hf" : "fused", "complex", !compiled_);
    common(fsdp1 ? "fsdp1" : "fsdp2");
    const bool hopper = !gpu_.starts_with("a100");
    attention(hopper && month_ >= 202503 ? "cudnn" : "fa2");
    compile(month_ >= 202503);
    if (fsdp1) {
      training("wrap", "{policy: per_block}");
      training("fsdp1", "{sharding_strategy: full_shard}");
    } else {
      const bool always = r_.reshard == "true", never = r_.reshard == "false";
      if (r_.strategy == "hsdp") return leave_out("the replicas of hsdp are not stated");
      if (r_.strategy != "full_shard" && r_.strategy != "grad_op")
        return leave_out(fmt::format("strategy '{}' is none of {}", r_.strategy, kStrategies));
      training("wrap",
               late ? "{policy: per_block, embedding: true, head: true}" : "{policy: per_block}");
      const int64_t last = static_cast<int64_t>(*r_.layers) - 1;
      if (never)
        training("fsdp2", "{reshard_after_forward: false}");
      else if (always)
        training("fsdp2", late ? "{reshard_after_forward: true}"
                               : "{reshard_after_forward: true, root_reshard_after_forward: true}");
      else if (!late)
        training("fsdp2",
                 fmt::format("{{reshard_after_forward: true, reshard: [{{module: model.layers.{}, "
                             "reshard_after_forward: false}}]}}",
                             last));
    }
    training("precision", "{storage: fp32, compute: bf16, reduce: fp32}");
    checkpointing(has(r_.model, "qwen3-32b") ? "full" : "selective_op");
    const bool fused = month_ >= 202503 || has(r_.notes, "fused=True");
    training("optimizer", fmt::format("{{name: adamw, implementation: {}, clip_grad_norm: 1.0}}",
                                      fused ? "fused" : "foreach"));
  }

  void composer() {
    gpt2();
    common("fsdp1");
    attention("triton");
    training("wrap", "{policy: per_block}");
    training("fsdp1", fmt::format("{{sharding_strategy: {}}}",
                                  r_.strategy == "grad_op" ? "shard_grad_op" : "full_shard"));
    // Composer's DEFAULT meant fp32 gathers until 2023-03-09 and no type of its own for reductions
    // until 2023-10-10; PURE is bf16 everywhere.
    if (month_ < 202303 && r_.param_dtype.empty())
      training("precision", "{storage: fp32, autocast: bf16}");
    else if (month_ < 202310)
      training("precision", "{storage: fp32, compute: bf16, reduce: bf16}");
    else
      training("precision", "{storage: fp32, compute: bf16, reduce: fp32}");
    // Its fused cross-entropy keeps 16-bit logits; torch's, on fp32 copies, before.
    if (month_ >= 202303) training("loss", "{float_logits: false}");
    checkpointing("full");
    training("optimizer", "{name: adamw, implementation: forloop, clip_grad_norm: 1.0}");
  }

  void fms() {
    llama("hf", "hf", false);
    const bool hybrid = r_.strategy == "hsdp";
    common("fsdp1");
    attention("fa2");
    compile(true);
    if (hybrid) training("mesh", fmt::format("{{replicate: {}, shard: 8}}", world_ / 8));
    training("wrap", "{policy: per_block}");
    training("fsdp1", fmt::format("{{sharding_strategy: {}, use_orig_params: {}}}",
                                  hybrid ? "hybrid_shard" : "full_shard", compiled_));
    training("precision", "{storage: fp32, compute: bf16, reduce: bf16}");
    checkpointing("every_k, every: 2");
    training("optimizer", "{name: adamw, implementation: foreach, clip_grad_norm: 1.0}");
  }

  void plain() {
    const std::string& f = r_.framework;
    const bool gpt = has(r_.model, "gpt") || has(r_.model, "GPT");
    if (gpt)
      gpt2();
    else
      llama("hf", "hf", false);
    const std::string& s = r_.strategy;
    const bool fp32 = has(r_.compute_dtype, "fp32");
    if (r_.compute_dtype.empty()) assume("bf16 compute");
    if (compiled_) leave_out("compiled programs of this framework are not known");
    if (s == "none" || (s == "ddp" && world_ == 1)) {
      common("none");
      training("precision", fp32                  ? "{storage: fp32}"
                            : has(f, "torchtune") ? "{storage: bf16}"
                                                  : "{storage: fp32, autocast: bf16}");
    } else if (s == "ddp") {
      common("ddp");
      training("precision", fp32 ? "{storage: fp32}" : "{storage: fp32, autocast: bf16}");
    } else if (s.starts_with("zero")) {
      if (s != "zero1" && s != "zero2" && s != "zero3")
        return leave_out(fmt::format("strategy '{}' is none of {}", s, kStrategies));
      common(s);
      training("precision", "{storage: fp32}");
    } else if (s == "full_shard" || s == "grad_op") {
      common("fsdp1");
      training("wrap", "{policy: per_block}");
      training("fsdp1", fmt::format("{{sharding_strategy: {}}}",
                                    s == "grad_op" ? "shard_grad_op" : "full_shard"));
      training("precision", fp32 ? "{storage: fp32}"
                                 : fmt::format("{{storage: fp32, compute: bf16, reduce: {}}}",
                                               r_.reduce_dtype == "fp32" ? "fp32" : "bf16"));
    } else {
      return leave_out(fmt::format("strategy '{}' is none of {}", s, kStrategies));
    }
    attention(fp32 ? "efficient" : "fa2");
    checkpointing("none");
    training("optimizer", "{name: adamw, implementation: foreach}");
  }

  MeasuredRow r_;
  std::optional<Architecture>
      preset_;  // of `shardsim list models`, where the row has its name alone
  bool dated_ = false;
  int month_ = kNewest;
  std::string gpu_, model_, cluster_, training_;
  int64_t world_ = 1, seq_ = 0, micro_ = 1, accum_ = 1;
  bool compiled_ = false;
  ExpressedRow out_;
};

}  // namespace

ExpressedRow express(const MeasuredRow& row) { return Writer(row).express(); }

}  // namespace shardsim
