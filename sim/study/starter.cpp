#include "sim/study/starter.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "sim/base/error.h"
#include "sim/base/spelling.h"
#include "sim/cluster/catalogue.h"
#include "sim/config/model.h"
#include "sim/config/scenario.h"

namespace shardsim {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kSeqLen = 8192;
constexpr int64_t kHidden70B =
    8192;  // of Llama-3-70B; the next larger one has a config of its own too

// Lines of YAML, each with its comment.
class Text {
 public:
  void head(const std::string& line) { out_ += "# " + line + "\n"; }
  void section(const std::string& name) { out_ += name + ":\n"; }
  void top(const std::string& line, const std::string& why) { commented(line, why); }
  void key(const std::string& line, const std::string& why) { commented("  " + line, why); }
  // A key that is not set, for whoever wants it.
  void idea(const std::string& line, const std::string& why) { commented("  # " + line, why); }
  std::string take() { return std::move(out_); }

 private:
  void commented(const std::string& line, const std::string& why) {
    constexpr size_t kColumn = 44;
    out_ += line;
    if (!why.empty())
      out_ += std::string(line.size() < kColumn ? kColumn - line.size() : 1, ' ') + " # " + why;
    out_ += '\n';
  }

  std::string out_;
};

struct StarterModel {
  Architecture architecture;
  std::string key;           // the line of `model`
  std::string source;        // its comment
  int64_t positions = 0;     // that it is trained on; 0: not said
  std::string positions_of;  // who says so
};

// What a config.json says of positions, by the names of its classes.
void read_positions(const std::string& text, const std::string& file, StarterModel& m) {
  const Value root(std::make_shared<const Document>(parse_json(text, file)));
  const Map map(root, Map::any_key);
  for (std::string_view key : {"max_position_embeddings", "n_positions", "max_seq_len"}) {
    const std::optional<Value> v = map.find(key);
    const Parsed<int64_t> n = v ? parse_whole(v->word()) : Parsed<int64_t>{0, "is not there"};
    if (!n.ok() || n.value < 1) continue;
    m.positions = n.value;
    m.positions_of = fmt::format("the model's {}", key);
    return;
  }
  // The defaults of transformers' classes.
  const std::string& type = m.architecture.model_type;
  if (type != "mpt" && type != "t5") return;
  m.positions = type == "mpt" ? 2048 : 512;
  m.positions_of = fmt::format("what transformers assumes of {}", type);
}

// A path as the scenario's file has to write it.
std::string beside(const std::string& path, const std::string& file) {
  if (file.empty() || fs::path(path).is_absolute()) return path;
  const fs::path folder = fs::absolute(file).parent_path();
  return fs::absolute(path).lexically_normal().lexically_relative(folder).string();
}

StarterModel model_of(const StarterRequest& r) {
  StarterModel m;
  std::vector<std::string_view> names;
  for (const ModelPreset& preset : model_presets()) {
    names.push_back(preset.name);
    if (preset.name != r.model) continue;
    m.architecture = read_hf_config(preset.config, r.model, r.model);
    m.key = "preset: " + r.model;
    m.source = "of `shardsim list models`";
    read_positions(std::string(preset.config), r.model, m);
    return m;
  }
  std::error_code error;
  std::string path = r.model;
  if (fs::is_directory(path, error)) path = (fs::path(path) / "config.json").string();
  if (!fs::exists(path, error)) {
    const bool looks_like_a_file =
        path.find('/') != std::string::npos || fs::path(path).extension() == ".json";
    if (looks_like_a_file) throw Error("there is no such file", {path});
    throw Error(
        fmt::format("there is no model {}", quoted_for_message(r.model)), {},
        spelling_hint(r.model, names, "models") + " (or the path of a Hugging Face config.json)");
  }
  const std::string text = read_text_file(path);
  std::string name = fs::absolute(path).parent_path().filename().string();
  m.architecture = read_hf_config(text, path, name);
  m.key = "hf_config: " + yaml_text(beside(path, r.file));
  m.source = "a path from this file's folder";
  read_positions(text, path, m);
  return m;
}

struct StarterCluster {
  Gpu gpu;
  std::vector<std::pair<std::string, std::string>> lines;  // key, why
  int64_t gpus_per_node = 8;
};

bool has_network(const SystemEntry& s) { return s.inter.bus_gbps.value > 0; }

// The first system of the catalogue that `like` is true for, one with a network before others.
template <class F>
const SystemEntry* first_system(F&& like) {
  for (const bool network : {true, false})
    for (const SystemEntry& s : system_catalogue())
      if (has_network(s) == network && like(s)) return &s;
  return nullptr;
}

StarterCluster cluster_of(const StarterRequest& r) {
  StarterCluster c;
  const std::optional<Gpu> gpu = find_gpu(r.gpu);
  if (!gpu) {
    std::vector<std::string_view> names;
    for (const GpuEntry& g : gpu_catalogue()) names.push_back(g.name);
    throw Error(fmt::format("--gpu: there is no GPU {}", quoted_for_message(r.gpu)), {},
                spelling_hint(r.gpu, names, "GPUs"));
  }
  c.gpu = *gpu;
  const SystemEntry* system =
      first_system([&](const SystemEntry& s) { return s.gpu == gpu->name; });
  if (system != nullptr) {
    c.lines.emplace_back(fmt::format("preset: {}", system->name),
                         "links and NICs, of `shardsim list clusters`");
  } else if (gpu->compute_capability == 0) {
    // The only ones that are not NVIDIA's.
    c.lines.emplace_back("gpu: " + gpu->name, "of `shardsim list gpus`");
    c.lines.emplace_back("links: {intra: {alpha: 5 us, bus: 304 GB/s}}",
                         "assumed: put your rccl-tests' bus bandwidth here");
    c.lines.emplace_back("nics: {count: 8, rate: 400 Gb/s}", "assumed: put your node's here");
  } else {
    const bool nvlink = gpu->nvlinks > 0;
    system = first_system([&](const SystemEntry& s) {
      const Gpu g = find_gpu(s.gpu).value();
      return nvlink ? g.nvlinks == gpu->nvlinks && g.compute_capability == gpu->compute_capability
                    : g.nvlinks == 0;
    });
    SHARDSIM_ASSERT(system != nullptr, "each kind of link has a system");
    c.lines.emplace_back(fmt::format("preset: {}", system->name),
                         nvlink ? "assumed: its NVLinks and network"
                                : "assumed: its PCIe and network; put your own links here");
    c.lines.emplace_back("gpu: " + gpu->name, "of `shardsim list gpus`");
  }
  if (system != nullptr) c.gpus_per_node = static_cast<int64_t>(system->gpus_per_node.value);
  // Grace Hopper: a superchip is a node of its own.
  if (gpu->name.starts_with("gh")) c.gpus_per_node = 1;
  if (r.gpus_per_node > 0) c.gpus_per_node = r.gpus_per_node;
  c.lines.emplace_back(fmt::format("gpus_per_node: {}", c.gpus_per_node), "");
  c.lines.emplace_back(fmt::format("nodes: {}", r.nodes), "");
  return c;
}

class Writer {
 public:
  Writer(const StarterRequest& r, StarterModel m, StarterCluster c)
      : r_(r),
        m_(std::move(m)),
        c_(std::move(c)),
        world_(c_.gpus_per_node * r.nodes),
        torchtitan_(r.style == "torchtitan"),
        large_(torchtitan_ && m_.architecture.hidden >= kHidden70B),
        fsdp1_(r.style == "accelerate-fsdp1"),
        bf16_(c_.gpu.bf16_tflops > 0) {}

  std::string write() {
    const std::string framework = torchtitan_ ? "torchtitan" : "accelerate";
    t_.head(fmt::format("{} on {} x {}, trained as {} does by default.", m_.architecture.name,
                        world_, c_.gpu.name, framework));
    const std::string& type = m_.architecture.model_type;
    if (torchtitan_ && type != "llama" && type != "qwen3")
      t_.head(
          fmt::format("torchtitan has no {} models: this is its way with Llama's blocks.", type));
    if (large_)
      t_.head(
          "torchtitan's llama3_70b and llama3_405b also split tensors over 8 GPUs, which is not "
          "here.");
    if (torchtitan_) t_.head("Its defaults are those of commit b5bcd76 (2026-08).");
    t_.head("Written by `shardsim init`; what other keys there are: scenarios/README.md.");
    t_.top("shardsim: 1", "");
    t_.top("name: " + yaml_text(m_.architecture.name + "-" + r_.style), "");
    t_.section("model");
    t_.key(m_.key, m_.source);
    form();
    t_.section("cluster");
    for (const auto& [key, why] : c_.lines) t_.key(key, why);
    t_.idea("price_per_gpu_hour: 2.50", "what the training costs, with token_budget");
    t_.section("training");
    sizes();
    strategy();
    precision();
    rest();
    t_.top("cost: {model: roofline}", "the GPU's constants; others: `shardsim list calibrations`");
    t_.top("options: {memory: blocks}", "what the allocator reserves; live is faster");
    return t_.take();
  }

 private:
  // How the code of the framework's models is written.
  void form() {
    if (m_.architecture.family != Family::llama) return;
    if (torchtitan_) {
      t_.key("norm: fused", "torchtitan: nn.RMSNorm");
      // Its qwen3 has cos and sin, its llama3 freqs_cis.
      const bool qwen3 = m_.architecture.model_type == "qwen3";
      t_.key(qwen3 ? "rope: hf" : "rope: complex",
             qwen3 ? "torchtitan's qwen3: rotate_half" : "torchtitan: freqs_cis");
    } else {
      t_.key("norm: hf", "transformers: written out in fp32");
      t_.key("rope: hf", "transformers: rotate_half");
      t_.key("attention: sdpa", "transformers' default attn_implementation");
    }
  }

  void sizes() {
    const bool capped = m_.positions > 0 && m_.positions < kSeqLen;
    t_.key(fmt::format("seq_len: {}", capped ? m_.positions : kSeqLen),
           capped        ? m_.positions_of
           : torchtitan_ ? "torchtitan's llama3 configs"
                         : "your script's; tokens of one sequence");
    t_.key("micro_batch: 1", torchtitan_
                                 ? "llama3_8b's local_batch_size; torchtitan's own default is 8"
                                 : "your script's; sequences a GPU and pass");
    t_.key("grad_accum: 1",
           torchtitan_ ? "global_batch_size: -1" : "accelerate: gradient_accumulation_steps: 1");
    t_.idea("token_budget: 1e12", "tokens of the whole training: hours, GPU-hours, money");
  }

  void strategy() {
    if (world_ == 1) {
      t_.key("strategy: none", "one GPU: nothing is sharded");
      return;
    }
    const bool tied = m_.architecture.tied;
    if (fsdp1_) {
      t_.key("strategy: fsdp1", "fsdp_version: 1, the plugin's default");
      t_.key("wrap: {policy: per_block}", "TRANSFORMER_BASED_WRAP");
      t_.section("  fsdp1");
      t_.key("  sharding_strategy: full_shard", "FULL_SHARD");
      t_.key("  backward_prefetch: pre", "BACKWARD_PRE, the first that `accelerate config` offers");
      t_.key("  forward_prefetch: false", "`accelerate config`: no");
      t_.key("  limit_all_gathers: true", "the plugin's default");
      t_.key("  use_orig_params: true", "`accelerate config`: yes");
      return;
    }
    t_.key("strategy: fsdp2", torchtitan_ ? "parallelize.py: fully_shard"
                                          : "`accelerate config` proposes fsdp_version: 2");
    t_.key("mesh: {replicate: 1, shard: -1}",
           torchtitan_ ? "data_parallel_replicate_degree: 1, shard_degree: -1" : "no HSDP");
    if (tied)
      t_.key("wrap: {policy: per_block}", "each block; the tied embedding and head are the root's");
    else
      t_.key("wrap: {policy: per_block, embedding: true, head: true}",
             torchtitan_ ? "parallelize.py: embedding, blocks, (norm, output)"
                         : "fsdp2_prepare_model: embedding, blocks, (norm, head)");
    t_.section("  fsdp2");
    t_.key("  reshard_after_forward: default",
           torchtitan_ ? "policy default: yes, but not the last group and the root"
                       : "reshard_after_forward: true; not the last group and the root");
  }

  void precision() {
    if (!bf16_) {
      t_.key("precision: {storage: fp32}", "this GPU has no bf16");
      return;
    }
    if (world_ == 1) {
      t_.key("precision: {storage: fp32, autocast: bf16}",
             torchtitan_ ? "mixed_precision_param: bfloat16 by autocast where nothing is sharded"
                         : "mixed_precision: bf16 by autocast");
      return;
    }
    if (torchtitan_)
      t_.key("precision: {storage: fp32, compute: bf16, reduce: fp32}",
             "mixed_precision_param: bfloat16, mixed_precision_reduce: float32");
    else
      t_.key("precision: {storage: fp32, compute: bf16, reduce: bf16}",
             "mixed_precision: bf16, as in its FSDP guides (`accelerate config` itself: no)");
  }

  void rest() {
    if (!torchtitan_ && m_.architecture.family == Family::llama) {
      if (bf16_)
        t_.key("loss: {in_forward: true, labels: true, keep_logits: fp32}",
               "transformers: the model returns loss and logits, accelerate converts them to fp32, "
               "and your loop holds them");
      else
        t_.key("loss: {in_forward: true, labels: true, keep_logits: as_made}",
               "transformers: the model returns loss and logits, and your loop holds them");
    }
    if (large_)
      t_.key("activation_checkpointing: {mode: full}", "llama3_70b, llama3_405b: FullAC");
    else if (torchtitan_)
      t_.key("activation_checkpointing: {mode: selective_op}",
             "llama3_8b: mode selective, option op");
    else
      t_.key("activation_checkpointing: {mode: none}", "fsdp_activation_checkpointing: false");
    if (torchtitan_)
      t_.key("optimizer: {name: adamw, implementation: fused, clip_grad_norm: 1.0}",
             "AdamW, implementation fused, max_norm: 1.0");
    else
      t_.key("optimizer: {name: adamw, implementation: foreach}",
             "your script's: torch.optim.AdamW as it is; clip_grad_norm if it clips");
    t_.key("compile: none", torchtitan_ ? "[compile] enable: false; with true: blocks_and_loss"
                                        : "dynamo_backend: no");
  }

  const StarterRequest& r_;
  StarterModel m_;
  StarterCluster c_;
  int64_t world_;
  bool torchtitan_, large_, fsdp1_, bf16_;
  Text t_;
};

}  // namespace

const std::vector<std::string>& starter_styles() {
  static const std::vector<std::string> names{"torchtitan", "accelerate", "accelerate-fsdp1"};
  return names;
}

std::string starter_scenario(const StarterRequest& request) {
  const std::vector<std::string>& styles = starter_styles();
  if (std::find(styles.begin(), styles.end(), request.style) == styles.end())
    throw Error(fmt::format("--style: there is no {}", quoted_for_message(request.style)), {},
                spelling_hint(request.style, {styles.begin(), styles.end()}, "styles"));
  StarterModel model = model_of(request);
  std::string text = Writer(request, std::move(model), cluster_of(request)).write();
  parse_scenario(text, request.file.empty() ? "scenario.yaml" : request.file);
  return text;
}

}  // namespace shardsim
