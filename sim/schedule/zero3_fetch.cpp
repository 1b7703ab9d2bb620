// PartitionedParameterCoordinator: what a module's hooks gather, fetch ahead and release.
#include <algorithm>

#include "sim/base/error.h"
#include "sim/base/units.h"
#include "sim/schedule/streams.h"
#include "sim/schedule/zero3.h"

namespace shardsim {

namespace {

constexpr uint32_t kMaxOngoingFetchEvents = 2;

}  // namespace

// The first forward finds an invalid trace, and from the next the recorded one is complete.
void Zero3::reset_step() {
  for (ParamId p : all_)
    if (at(p).handle) {
      take_from_flight(p, kCompute);
      release_param(p);
    }
  if (trace_ != TraceMode::complete) {
    assert_ints_same_as_other_ranks(module_order_.size());
    if (trace_ == TraceMode::record) {
      for (size_t step = 0; step < module_order_.size(); ++step)
        for (ParamId p : owned_by(module_order_[step]))
          param_order_.emplace_back(p, static_cast<int64_t>(step));
      for (int i = 0; i < 2; ++i) assert_ints_same_as_other_ranks(param_order_.size());
      trace_ = TraceMode::complete;
    } else {
      trace_ = TraceMode::record;
    }
  }
  queue_.assign(param_order_.begin(), param_order_.end());
  for (ParamId p : all_) at(p).fetched_for = INT64_MIN;
  step_ = 0;
  available_ = 0;
}

// get_lst_from_rank0: the length and then the numbers, each to the device, broadcast, and back.
void Zero3::assert_ints_same_as_other_ranks(size_t count) {
  for (const Bytes bytes : {Bytes{8}, static_cast<Bytes>(8 * count)}) {
    if (bytes > 0) {
      host_.launch(kCompute, copy(WorkKind::CopyH2D, "ints", bytes));
      host_.stream_sync(kCompute);
    }
    host_.collective(kCompute, collective(WorkKind::Broadcast, "ints", bytes, DType::i64));
    if (bytes > 0) {
      host_.launch(kCompute, copy(WorkKind::CopyD2H, "ints", bytes));
      host_.stream_sync(kCompute);
    }
  }
}

void Zero3::fetch_sub_module(uint32_t module) {
  if (options_.overlap_comm) host_.make_streams();
  const std::vector<ParamId>& own = owned_by(module);
  std::vector<ParamId> missing;
  for (ParamId p : own)
    if (at(p).status == Status::not_available) missing.push_back(p);
  all_gather(missing);
  for (ParamId p : own) {
    at(p).active.insert(module);
    if (!at(p).handle) continue;
    host_.limit_events(kFetchEvents, kMaxOngoingFetchEvents);
    take_from_flight(p, gathers_);
    host_.push_event(kFetchEvents, host_.record(gathers_));
  }
  host_.wait_stream(kCompute, gathers_);
  if (trace_ == TraceMode::complete) prefetch(module);
  ++step_;
}

// Takes the module's own parameters off the queue, and fetches what comes next.
void Zero3::prefetch(uint32_t module) {
  std::set<uint32_t> expected, discarded;
  for (ParamId p : owned_by(module))
    if (at(p).fetched_for < step_) expected.insert(p.v);
  while (!queue_.empty() && discarded.size() < expected.size()) {
    const auto [p, last_used] = queue_.front();
    queue_.pop_front();
    at(p).fetched_for = last_used;
    discarded.insert(p.v);
  }
  SHARDSIM_ASSERT(discarded == expected, "modules run in the order of the trace");
  if (options_.prefetch_bucket_size == 0) return;
  const int64_t most =
      std::min(options_.max_live_parameters - available_, options_.prefetch_bucket_size);
  std::vector<ParamId> ahead;
  int64_t numel = 0;
  while (!queue_.empty() && numel < most) {
    const auto [p, last_used] = queue_.front();
    queue_.pop_front();
    Parameter& x = at(p);
    const bool again =
        std::any_of(ahead.begin(), ahead.end(), [id = p](ParamId a) { return a == id; });
    x.fetched_for = std::max(x.fetched_for, last_used);
    if (x.status != Status::not_available || again) continue;
    ahead.push_back(p);
    numel += x.numel;
  }
  all_gather(ahead);
}

// What fetching, waiting for and releasing a parameter in its modules' hooks costs the host, in those of
// FSDP's views of one: MiniTrainBench's ZeRO-3 rows without recomputation.
constexpr uint32_t kHookedViews = 11;

void Zero3::all_gather(std::vector<ParamId> params) {
  if (params.empty()) return;
  std::sort(params.begin(), params.end(), [](ParamId a, ParamId b) { return a.v < b.v; });
  auto handle = std::make_shared<Handle>();
  handle->params = params;
  handle->references = static_cast<int>(params.size());
  int64_t parts = 0;
  for (ParamId p : params) {
    Parameter& x = at(p);
    x.status = Status::inflight;
    x.handle = handle;
    available_ += x.numel;
    parts += x.part;
  }
  const Bytes bytes = low(parts * ranks_);
  const GroupId group = at(params[0]).group;
  BufferId out;
  if (params.size() == 1) {
    out = at(params[0]).data = make(bytes, gathers_, Category::unsharded_parameters, group);
  } else {
    out = handle->staging = make(bytes, gathers_, Category::all_gather_buffers, group);
    cat(gathers_, params.size(), low(parts), "all_gather_input");
  }
  const auto views = kHookedViews * static_cast<uint32_t>(params.size());
  handle->end = host_.async_collective(
      gathers_, collective(WorkKind::AllGather, "all_gather", bytes, DType::bf16, group, views),
      {out});
}

// The registry's pop(param).wait().
void Zero3::take_from_flight(ParamId p, StreamId stream) {
  const std::shared_ptr<Handle> handle = std::move(at(p).handle);
  at(p).handle = nullptr;
  wait(*handle, stream);
  if (--handle->references > 0 || !handle->staging.valid()) return;
  if (stream != gathers_) host_.use_on(handle->staging, stream);
  drop(handle->staging);
}

void Zero3::wait(Handle& handle, StreamId stream) {
  if (handle.complete) return;
  handle.complete = true;
  host_.wait_for_work(stream, handle.end);
  for (ParamId p : handle.params) {
    Parameter& x = at(p);
    x.status = Status::available;
    if (!handle.staging.valid()) continue;
    x.data = make(low(x.numel), stream, Category::unsharded_parameters, x.group);
    // torch.cat of a single tensor is a copy.
    if (!cat(stream, static_cast<size_t>(ceil_div(x.numel, x.part)), low(x.numel),
             "all_gather_output"))
      host_.launch(stream, copy(WorkKind::CopyD2D, "all_gather_output", low(x.numel), x.group));
  }
}

void Zero3::release_sub_module(uint32_t module, bool forward) {
  std::set<uint32_t> all;
  for (ParamId p : owned_by(module)) all.insert(p.v);
  const std::set<uint32_t>& gone = trace_ == TraceMode::complete ? params_to_release(module) : all;
  if (!forward) {
    std::erase(active_backward_, module);
    let_go(module);
  }
  const int64_t holder = forward && in_backward_ ? static_cast<int64_t>(module) : -1;
  for (ParamId p : owned_by(module)) {
    at(p).active.erase(module);
    if (gone.count(p.v) != 0) release_param(p, holder);
  }
}

// Not what persists, what was skipped by a fetch for a later use, or what the trace uses again within
// the reuse distance. Remembered by module and step, as lru_cache does.
const std::set<uint32_t>& Zero3::params_to_release(uint32_t module) {
  const auto [found, made] = releases_.try_emplace({module, step_});
  std::set<uint32_t>& out = found->second;
  if (!made) return out;
  for (ParamId p : owned_by(module))
    if (!at(p).persists && at(p).fetched_for <= step_) out.insert(p.v);
  int64_t traversed = 0;
  for (auto s = static_cast<size_t>(step_); s < module_order_.size(); ++s) {
    if (traversed >= options_.max_reuse_distance) break;
    for (ParamId p : owned_by(module_order_[s])) out.erase(p.v);
    traversed += numel_of(module_order_[s]);
  }
  return out;
}

void Zero3::release_param(ParamId p, int64_t holder) {
  Parameter& x = at(p);
  if (x.status != Status::available || !x.active.empty()) return;
  if (holder < 0) {
    host_.use_on(x.data, kCompute);
    drop(x.data);
  } else {
    held_.emplace_back(holder, x.data);
  }
  x.data = {};
  x.status = Status::not_available;
  available_ -= x.numel;
}

void Zero3::let_go(uint32_t module) {
  for (const auto& [holder, data] : held_)
    if (holder == module) {
      host_.use_on(data, kCompute);
      drop(data);
    }
  std::erase_if(held_, [&](const auto& h) { return h.first == module; });
}

// Modules whose input needs no gradient have no post-backward.
void Zero3::release_backward_leftovers() {
  while (!active_backward_.empty()) {
    const uint32_t module = active_backward_.back();
    active_backward_.pop_back();
    let_go(module);
    for (ParamId p : owned_by(module)) {
      at(p).active.erase(module);
      if (!at(p).persists) release_param(p);
    }
  }
}

void Zero3::release_and_reset_all() {
  for (ParamId p : all_) {
    if (at(p).handle) take_from_flight(p, kCompute);
    at(p).active.clear();
    release_param(p);
  }
}

}  // namespace shardsim
