#include "backends/cuda/collectives.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "backends/replay/communicators.h"
#include "backends/replay/regions.h"
#include "sim/schedule/works.h"

namespace shardsim {

namespace {

using Clock = std::chrono::steady_clock;

ncclDataType_t type_of(DType t) {
  switch (t) {
    case DType::fp32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::fp16: return ncclFloat16;
    case DType::i64: return ncclInt64;
    case DType::fp8:
    case DType::u8: break;
  }
  return ncclUint8;
}

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

}  // namespace

Collectives::~Collectives() {
  for (size_t i = all_.size(); i-- > 0;) {
    ncclComm_t const comm = all_[i];
    try {
      call("ncclCommFinalize", ncclCommFinalize(comm), comm);
      await(comm, "ncclCommFinalize");
      call("ncclCommDestroy", ncclCommDestroy(comm), comm);
    } catch (const Stopped&) {  // the results are there: only the end of the run is disturbed
      ncclCommAbort(comm);
    }
  }
}

void Collectives::await(ncclComm_t comm, const char* what) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(limits_.timeout_s);
  for (;;) {
    ncclResult_t state = ncclSuccess;
    call("ncclCommGetAsyncError", ncclCommGetAsyncError(comm, &state), comm);
    if (state == ncclSuccess) return;
    call(what, state, comm);
    meeting_.look();
    if (limits_.interrupted()) throw Stopped(Stopped::Why::interrupted, "interrupted");
    if (Clock::now() > deadline)
      throw Stopped(Stopped::Why::timeout,
                    fmt::format("{} has not ended within {:g} s", what, limits_.timeout_s));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void Collectives::prepare(const std::vector<Comm>& comms) {
  comms_ = comms;
  const int rank = meeting_.rank(), world = meeting_.world();
  ncclUniqueId id{};
  if (rank == 0) call("ncclGetUniqueId", ncclGetUniqueId(&id), nullptr);
  const std::string shared = meeting_.broadcast(std::string(id.internal, sizeof id.internal));
  std::memcpy(id.internal, shared.data(), std::min(shared.size(), sizeof id.internal));
  ncclConfig_t config = non_blocking();
  call("ncclCommInitRankConfig", ncclCommInitRankConfig(&world_, world, id, rank, &config),
       nullptr);
  all_.push_back(world_);
  await(world_, "ncclCommInitRankConfig");
  bool world_taken = false;
  for (const Comm& c : comms_) {
    // Each process group of PyTorch's has a communicator of its own, so that they do not wait for
    // each other; the world's first one needs no second.
    if (c.size == world && !world_taken) {
      world_taken = true;
      by_id_.push_back(world_);
      continue;
    }
    const Membership m = membership(c, rank);
    ncclComm_t part = nullptr;
    config = non_blocking();
    call("ncclCommSplit", ncclCommSplit(world_, m.first, rank, &part, &config), world_);
    await(world_, "ncclCommSplit");
    all_.push_back(part);
    await(part, "ncclCommSplit");
    by_id_.push_back(part);
  }
}

void Collectives::run(const Work& w, Regions r, cudaStream_t stream) {
  ncclComm_t const comm = by_id_[w.comm.v];
  const int64_t parts = parts_of(w, comms_[w.comm.v]);
  const DType moved = moved_as(w, parts);
  const auto count = static_cast<size_t>(w.bytes / bytes_of(moved) / parts);
  const ncclDataType_t type = type_of(moved);
  const ncclRedOp_t op = w.op == ReduceOp::avg ? ncclAvg : ncclSum;
  ncclResult_t code = ncclInvalidArgument;
  const char* name = "?";
  switch (w.kind) {
    case WorkKind::AllGather:
      name = "ncclAllGather";
      code = ncclAllGather(r.in, r.out, count, type, comm, stream);
      break;
    case WorkKind::ReduceScatter:
      name = "ncclReduceScatter";
      code = ncclReduceScatter(r.in, r.out, count, type, op, comm, stream);
      break;
    case WorkKind::AllReduce:
      name = "ncclAllReduce";
      code = ncclAllReduce(r.in, r.out, count, type, op, comm, stream);
      break;
    case WorkKind::Broadcast:
      name = "ncclBroadcast";
      code = ncclBroadcast(r.in, r.out, count, type, w.root, comm, stream);
      break;
    case WorkKind::Reduce:
      name = "ncclReduce";
      code = ncclReduce(r.in, r.out, count, type, op, w.root, comm, stream);
      break;
    default: break;
  }
  call(name, code, comm);
  // Nothing may follow on this communicator before NCCL has taken the call.
  if (code == ncclInProgress) await(comm, name);
}

void Collectives::look() {
  for (ncclComm_t comm : all_) {
    ncclResult_t state = ncclSuccess;
    call("ncclCommGetAsyncError", ncclCommGetAsyncError(comm, &state), comm);
    call("NCCL's communicator", state, comm);
  }
}

void Collectives::abort() {
  while (!all_.empty()) {
    ncclCommAbort(all_.back());
    all_.pop_back();
  }
}

}  // namespace shardsim
