// One scenario as plain values: model, cluster, training, cost model, options. sim/config reads it
// from YAML; conform makes it from a recording's case; tests write it directly.
// Every field is what PyTorch's own knob of that name does; sources in sim/schedule/fsdp2.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/error.h"
#include "sim/cluster/calibration.h"
#include "sim/cluster/cluster.h"
#include "sim/cluster/collective_model.h"
#include "sim/model/architecture.h"
#include "sim/model/version.h"

namespace shardsim {

struct Mesh {
  int64_t replicate = 1;  // HSDP replicas
  int64_t shard = 1;      // ranks that share one copy of the parameters
  int64_t world() const { return replicate * shard; }
};

// Which modules get their own fully_shard call, in the order the calls are made.
enum class WrapPolicy : uint8_t {
  root_only,  // one group for the whole model
  per_block,  // each block
  every_k,    // k consecutive blocks as one list group
  nested,     // each child of a block that has parameters, then the block
  children,   // only the children
  list,       // each module whose name matches a pattern
  groups,     // each list of patterns is one list group
  size,       // smallest modules that reach min_params, bottom-up
};

// fully_shard's reshard_after_forward.
struct Reshard {
  enum class Kind : uint8_t { standard, yes, no, to };  // standard: True, but False for the root
  Kind kind = Kind::standard;
  int64_t ranks = 0;  // Kind::to: the post-forward mesh size
  friend bool operator==(const Reshard&, const Reshard&) = default;
};

struct ReshardOverride {
  std::string pattern;  // module name, with * for any run of characters; "" is the root
  Reshard reshard;
};

struct Wrap {
  WrapPolicy policy = WrapPolicy::per_block;
  int64_t every = 1;                 // every_k
  int64_t min_params = 100'000'000;  // size (torch size_based_auto_wrap_policy's default)
  std::vector<std::vector<std::string>> groups;  // list: one pattern each; groups: several
  bool embedding = false;                        // a group for the embedding
  bool head = false;                             // a list group of final norm and head
};

// When a setting holds over the micro-batches of a step: in each, only in the last, or in none.
enum class Micro : uint8_t { each, last, never };
inline bool holds(Micro m, bool last_micro_batch) {
  return m == Micro::each || (m == Micro::last && last_micro_batch);
}

// What a setter of one FSDPModule says: set_gradient_divide_factor and its like.
struct StateSetting {
  std::string pattern;  // module name; "" is the root
  std::optional<double> gradient_divide_factor;
  std::optional<bool> force_sum_reduction, unshard_in_backward;
  std::optional<Micro> requires_gradient_sync, requires_all_reduce, reshard_after_backward;
  std::optional<bool> reduce_scatter_unused_params;
  bool may_match_nothing = false;
};

// shard_placement_fn: parameters that are sharded on another dimension than 0.
struct ShardPlacement {
  std::string pattern;  // parameter name
  int dim = 0;
};

// shard_placement_fn: parameters that are sharded on a smaller mesh of their own.
struct SecondMesh {
  std::vector<std::string> patterns;  // parameter names
  int64_t shard = 1;                  // ranks
};

// CPUOffloadPolicy.
enum class CpuOffload : uint8_t { none, pinned, pageable };

// Explicit unshard() of modules before each forward.
struct UnshardBefore {
  std::vector<std::string> patterns;  // module names
  bool async_op = false;
  bool wait = false;  // the handles are waited for before the forward
};

// set_manual_backward_finalization, and what finalize_backward is called with.
enum class ManualFinalization : uint8_t { no, sync, async };

// What is called for after the steps: state_dict(), or get_model_state_dict(full_state_dict=True,
// cpu_offload=...).
enum class SavedState : uint8_t { none, sharded, full, full_offload };

struct Fsdp2Options {
  Reshard reshard_after_forward;
  Reshard root_reshard;                        // the root's own value
  Reshard head_reshard{Reshard::Kind::no, 0};  // of the head's list group
  std::vector<ReshardOverride> overrides;      // per group, later entries win
  int64_t forward_prefetch = 0;                // blocks ahead, explicit
  int64_t root_forward_prefetch = 0;           // blocks that the root prefetches
  int64_t backward_prefetch = 0;               // 0: implicit
  Micro requires_gradient_sync = Micro::each;
  Micro requires_all_reduce = Micro::each;
  Micro is_last_backward = Micro::each;
  Micro reshard_after_backward = Micro::each;
  int64_t reduce_scatter_max_input_buffers = 1;
  bool separate_reduce_scatter_group = false;
  bool keep_unsharded_storage = false;
  bool persistent_all_gather = false;  // set_custom_all_gather with one output kept per size
  bool post_optim_event = false;       // gathers wait for the optimizer's event, not for the stream
  std::vector<StateSetting> settings;  // of single modules, later entries win
  CpuOffload cpu_offload = CpuOffload::none;
  bool unshard_async_op = false;  // _set_unshard_async_op
  UnshardBefore unshard_before;
  std::vector<ShardPlacement> shard_placement;  // the first that matches holds
  SecondMesh second_mesh;
  std::vector<std::string> ignored_params;  // patterns of parameters
  ManualFinalization manual_finalization = ManualFinalization::no;
  SavedState state_dict = SavedState::none;
  bool optimizer_state_dict = false;  // with a full state dict: the optimizer's too
};

// FSDP1's own (torch.distributed.fsdp.FullyShardedDataParallel), by its arguments' names.
enum class ShardingStrategy : uint8_t {
  full_shard,
  shard_grad_op,
  no_shard,
  hybrid_shard,
  hybrid_shard_zero2,  // _HYBRID_SHARD_ZERO2
};

struct Fsdp1Options {
  ShardingStrategy sharding_strategy = ShardingStrategy::full_shard;
  enum class BackwardPrefetch : uint8_t {
    pre,
    post,
    none
  } backward_prefetch = BackwardPrefetch::pre;
  bool forward_prefetch = false;
  bool limit_all_gathers = true;
  bool use_orig_params = false;
  bool cpu_offload = false;               // CPUOffload(offload_params=True)
  bool no_sync = false;                   // every micro-batch but the last is under no_sync()
  bool keep_low_precision_grads = false;  // MixedPrecision's
  bool cast_root_forward_inputs = true;   // MixedPrecision's
  std::optional<DType> buffer_dtype;      // MixedPrecision's; none: as they are stored
  // After the steps: state_dict() of this type, then summon_full_params().
  enum class StateDict : uint8_t {
    none,
    full,
    full_offload,
    full_offload_rank0,
    sharded,
    sharded_offload,
    local
  } state_dict = StateDict::none;
  bool summon_full_params = false;
};

// DeepSpeed's section zero_optimization by its keys' names; sizes in elements.
struct ZeroOptions {
  bool overlap_comm = false;  // DeepSpeed's default is true for stage 3
  int64_t reduce_bucket_size = 500'000'000;
  bool reduce_scatter = true;
  bool use_multi_rank_bucket_allreduce = true;  // stages 1 and 2, as round_robin_gradients
  bool round_robin_gradients = false;
  // Stage 3.
  int64_t prefetch_bucket_size = 50'000'000;
  int64_t param_persistence_threshold = 100'000;
  int64_t model_persistence_threshold = INT64_MAX;
  int64_t max_live_parameters = 1'000'000'000;
  int64_t max_reuse_distance = 1'000'000'000;
  int64_t sub_group_size = 1'000'000'000;
  double gradient_clipping = 1.0;  // 0: none; a key beside zero_optimization
  DType made_in = DType::fp32;     // the model's type before the engine casts it to bf16
};

// DistributedDataParallel's own, by its arguments' names.
struct DdpOptions {
  std::optional<double> bucket_cap_mb;  // 25 MiB, and 1 MiB for the first bucket, where not given
  std::vector<double> bucket_cap_mb_list;  // one cap a bucket, the last for all that follow
  bool small_last_bucket = false;          // DDP_SET_LAST_BUCKET_CAP=1
  bool gradient_as_bucket_view = false;
  bool static_graph = false;
  bool find_unused_parameters = false;
  bool broadcast_buffers = true;
  bool init_sync = true;  // parameters and buffers are broadcast by the constructor
  bool batched_grad_copy = false;
  bool lazy_bucket_allocation = false;
  // register_comm_hook with one of default_hooks.
  enum class CommHook : uint8_t {
    none,
    allreduce,
    bf16_compress,
    fp16_compress
  } comm_hook = CommHook::none;
  bool no_sync = false;  // every micro-batch but the last is under no_sync()
};

enum class Strategy : uint8_t {
  none,         // one GPU, parameters whole
  ddp,          // DistributedDataParallel
  torch_zero1,  // with ZeroRedundancyOptimizer
  fsdp1,        // FullyShardedDataParallel
  fsdp2,        // fully_shard
  zero1,        // DeepSpeed's stages
  zero2,
  zero3,
};
constexpr const char* name_of(Strategy s) {
  switch (s) {
    case Strategy::none: return "none";
    case Strategy::ddp: return "ddp";
    case Strategy::torch_zero1: return "zero1";
    case Strategy::fsdp1: return "fsdp1";
    case Strategy::fsdp2: return "fsdp2";
    case Strategy::zero1: return "zero1";
    case Strategy::zero2: return "zero2";
    case Strategy::zero3: return "zero3";
  }
  return "?";
}
// Every rank holds all parameters and their gradients as whole tensors.
constexpr bool keeps_parameters_whole(Strategy s) {
  return s == Strategy::none || s == Strategy::ddp || s == Strategy::torch_zero1;
}
// DDP's reducer reduces the gradients.
constexpr bool reduces_buckets(Strategy s) {
  return s == Strategy::ddp || s == Strategy::torch_zero1;
}
constexpr bool is_zero(Strategy s) {
  return s == Strategy::zero1 || s == Strategy::zero2 || s == Strategy::zero3;
}
constexpr int zero_stage(Strategy s) {
  return s == Strategy::zero1 ? 1 : s == Strategy::zero2 ? 2 : 3;
}

struct Precision {
  DType storage = DType::fp32;
  std::optional<DType> compute;  // MixedPrecisionPolicy.param_dtype
  std::optional<DType> reduce;   // .reduce_dtype
  std::optional<DType> output;   // .output_dtype
  bool cast_forward_inputs = true;
  std::optional<DType> autocast;   // torch.autocast around forward and loss
  bool autocast_backward = false;  // and around backward, as PyTorch advises against
  std::vector<std::string> keep;  // param_dtype_override_fn: parameters that stay in their own type
};

struct Checkpointing {
  enum class Mode : uint8_t { none, full, selective_op, every_k } mode = Mode::none;
  int64_t every = 1;       // every_k: blocks 0, k, 2k, ...
  std::string part;        // around this child of each block; empty: around the block
  bool around = false;     // the checkpoint goes around the wrapped modules, not inside them
  bool reentrant = false;  // checkpoint(use_reentrant=True)
};

struct Optimizer {
  enum class Name : uint8_t { adamw, adam, sgd, none } name = Name::adamw;
  enum class Implementation : uint8_t {
    foreach,
    fused,
    forloop
  } implementation = Implementation::foreach;
  bool momentum = false;  // sgd
  bool amsgrad = false;   // adam, adamw
  // adam, sgd: added to the gradient (L2). AdamW always decays, without a temporary.
  double weight_decay = 0;
  bool in_backward = false;  // one per parameter, in a post-accumulate hook (sgd)
  bool set_to_none = true;
};

// Tensors of a parameter's size that the optimizer holds for each.
constexpr int state_copies(const Optimizer& o) {
  if (o.name == Optimizer::Name::none) return 0;
  if (o.name == Optimizer::Name::sgd) return o.momentum ? 1 : 0;
  return o.amsgrad ? 3 : 2;
}

// What torch.compile compiles (Inductor): each block by itself, the blocks and the loss, the model,
// the model and the loss.
enum class Compile : uint8_t { none, blocks, blocks_and_loss, model, model_and_loss };

// A decoder's loss where the model's own forward takes the labels and returns it.
struct Loss {
  bool in_forward = false;
  enum class Kind : uint8_t {
    plain,  // the head, then cross entropy
    // in chunks of tokens (Training::loss_chunks), each checkpointed from the hidden states
    checkpointed,
    // chunk by chunk with the gradients of head and hidden states made in the forward
    fused,
    split_logits,  // all logits at once, their loss in chunks of tokens
  } kind = Kind::plain;
  // The logits are held until the next forward replaces them: as the head made them, or in fp32.
  enum class KeepLogits : uint8_t { no, as_made, fp32 } keep_logits = KeepLogits::no;
  bool labels = false;   // a tensor of their own, not the ids
  bool divided = false;  // by grad_accum, before the backward
};

// Which kernels scaled_dot_product_attention runs on 16-bit types; a cost, never an order.
// automatic: by GPU and software date (sim/cost/assumptions.h).
enum class AttentionBackend : uint8_t { automatic, fa2, fa3, cudnn, triton, efficient };

// Year and month of PyTorch, cuBLAS and the rest, as 202503; 0: of the calibration's date.
using SoftwareDate = int;

struct Training {
  AttentionBackend attention_backend = AttentionBackend::automatic;
  SoftwareDate software = 0;
  std::string pytorch = "2.15";  // one of played_releases()
  bool legacy_nccl = false;      // the backend "nccl-legacy" (TORCH_DIST_USE_NCCL2=0)
  const Behaviour& behaviour() const { return *behaviour_of(pytorch); }
  int64_t seq_len = 0;      // tokens a sequence; stack and bag: not used
  int64_t micro_batch = 1;  // sequences (stack and bag: rows) per data-parallel rank
  int64_t grad_accum = 1;
  Strategy strategy = Strategy::fsdp2;
  Mesh mesh;
  Wrap wrap;
  Fsdp2Options fsdp2;
  Fsdp1Options fsdp1;
  ZeroOptions zero;
  DdpOptions ddp;
  bool parameters_as_bucket_view = false;  // ZeroRedundancyOptimizer's
  Precision precision;
  DType input_dtype = DType::fp32;  // stack and bag
  bool float_logits = true;         // cross_entropy(logits.float())
  Loss loss;
  bool float_loss = true;  // stack and bag: y.float().sum(), otherwise y.sum()
  Checkpointing checkpointing;
  Compile compile = Compile::none;
  bool compile_benchmarks = false;  // candidates are timed at a kernel's first call
  Optimizer optimizer;
  // Parameters that are stored in another type than precision.storage, the last that matches holds.
  std::vector<std::pair<std::string, DType>> param_dtypes;
  std::vector<std::string> frozen;  // patterns of parameters that require no gradient
  double clip_grad_norm = 0;        // 0: gradients are not clipped
  int64_t forwards = 1;             // whose losses are added before one backward
  int64_t loss_chunks = 1;          // decoders: slices of the sequence that head and loss run on
  bool evaluate_after = false;      // a forward without gradients after the steps
  std::string allocator;            // PYTORCH_CUDA_ALLOC_CONF; memory level blocks
  int64_t token_budget = 0;         // tokens of the whole training, for planning; 0: not stated
};

// The rule of the recordings, and what a person checks by hand (oracle/README).
struct FlatCost {
  double kernel_us = 10;
  double gemm_tflops = 600;
  double bus_gbps = 200;
  double host_us = 0;
};

// Ranks and kernels that are not alike (sim/cost/stragglers.h).
struct Jitter {
  double rank_sigma = 0, kernel_sigma = 0;
  uint64_t seed = 0;
};

struct CostChoice {
  enum class Model : uint8_t { roofline, flat } model = Model::roofline;
  FlatCost flat;
  CollectiveModel collectives;
  std::optional<double> scale_tax;  // of a doubling of ranks; none: the calibration's
  Jitter jitter;
  bool sharing = true;  // roofline: links, memory and SMs are shared by what is in flight
  std::optional<Calibration> calibration;  // none: what is known of the GPU's generation
};

enum class MemoryLevel : uint8_t {
  live,    // the sum of live buffers, each rounded up to 512 bytes
  blocks,  // the caching allocator itself: allocated, active, reserved, out of memory
};

struct Options {
  int64_t max_steps = 6;
  MemoryLevel memory = MemoryLevel::live;
};

struct Scenario {
  std::string name;
  Architecture model;
  Cluster cluster;
  Training training;
  CostChoice cost;
  Options options;
  // Where the scenario's text has a key ("training.frozen[2]"), or the nearest one above that it has;
  // none where there is no text.
  std::function<Place(std::string_view key)> place_of;
};

}  // namespace shardsim
