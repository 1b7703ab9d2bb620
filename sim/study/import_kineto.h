// An op log (sim/report/op_log.h) of a training step from a trace of PyTorch's profiler, so that a
// user's own run is compared with a prediction without a replay.
//
// Steps are ProfilerStep# ranges of the host: a step's ops are those whose launch (by correlation)
// lies between its start and the next one's, it begins where the ops launched before it have ended (the
// first of a trace: where the host begins it) and ends with its last op, as sim/report/timeline.h has
// it. The step of the median length is taken, or the one that is named; a trace without such ranges is
// one step.
// Kinds: collectives by the profiler's "Collective name", else by NCCL's kernel
// (ncclKernel_AllGather_RING_LL_Sum_int8_t, ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL), else by
// the nccl: range around the launch; products by the names of cuBLAS, CUTLASS, Inductor and rocBLAS.
// Bytes of a collective are its elements times its type's size, the whole tensor.
// Groups are those of the innermost FSDP:: range with a name around the launch, on its thread:
// "FSDP::all_gather (layers.3)"; without a name it is the root's. A stream is what it does.
// What a trace does not say is not made up: it is null, counted or a warning of the log.
// Worked example: three steps of 222, 220 and 225 ms: the first is taken, being the median.
#pragma once

#include <optional>
#include <string>

#include "sim/report/op_log.h"
#include "sim/study/kineto_events.h"

namespace shardsim {

struct KinetoChoice {
  std::optional<int64_t> rank;  // of a folder of traces; none: the lowest
  std::optional<int64_t> step;  // ProfilerStep#; none: the median one
};

OpLog op_log_of(const KinetoTrace& trace, const std::string& file, const KinetoChoice& choice);

// A trace (.json, .json.gz) or a folder of one a rank.
OpLog import_kineto(const std::string& path, const KinetoChoice& choice);

// What a kernel is by its name; nullopt: NCCL's of a kind that op logs have not, as SendRecv.
std::optional<WorkKind> kernel_kind(std::string_view kernel, std::string_view collective,
                                    std::string_view scope);

}  // namespace shardsim
