#include "sim/schedule/first_compilation.h"

#include <initializer_list>
#include <vector>

#include "sim/schedule/streams.h"

namespace shardsim {

namespace {

WorkId copy(Host& host, WorkKind kind, Bytes bytes) {
  Work w;
  w.kind = kind;
  w.bytes = bytes;
  w.name = "constant";
  return host.work(w);
}

void constants(Host& host, int count, Bytes bytes) {
  const WorkId up = copy(host, WorkKind::CopyH2D, bytes);
  const WorkId across = copy(host, WorkKind::CopyD2D, bytes);
  std::vector<BufferId> made;
  for (int i = 0; i < count; ++i) {
    const BufferId first = host.buffer(bytes, kCompute, Category::temporary);
    made.push_back(host.buffer(bytes, kCompute, Category::temporary));
    host.alloc(first);
    host.launch(kCompute, up);
    host.stream_sync(kCompute);
    host.alloc(made.back());
    host.launch(kCompute, across);
    host.free(first);
  }
  for (BufferId b : made) host.free(b);
}

void read_back(Host& host, std::initializer_list<Bytes> sizes) {
  Work fill;
  fill.name = "fill";
  for (const Bytes bytes : sizes) {
    const BufferId made = host.buffer(bytes, kCompute, Category::temporary);
    fill.bytes = bytes;
    host.alloc(made);
    host.launch(kCompute, host.work(fill));
    host.take_pinned(kCompute, bytes);
    host.launch(kCompute, copy(host, WorkKind::CopyD2H, bytes));
    host.stream_sync(kCompute);
    host.release_pinned(kCompute, bytes);
    host.free(made);
  }
}

}  // namespace

void first_compilation(Host& host) {
  constants(host, 12, 4);
  constants(host, 14, 2);
}

void first_model_compilation(Host& host) { read_back(host, {4}); }

void first_loss_compilation(Host& host) { read_back(host, {8, 4, 8, 4, 4}); }

void time_candidates(Host& host, const Work& kernel, Bytes overwritten) {
  constexpr Bytes kCache = 50 * kMiB;
  constexpr int kEstimates = 5, kWarmups = 100, kRuns = 100;
  const WorkId run = host.work(kernel);
  const WorkId copied = copy(host, WorkKind::CopyD2D, overwritten);
  const WorkId clear = copy(host, WorkKind::Memset, kCache);
  const auto call = [&] {
    const BufferId clone = host.buffer(overwritten, kCompute, Category::temporary);
    if (overwritten > 0) {
      host.alloc(clone);
      host.launch(kCompute, copied);
    }
    host.launch(kCompute, run);
    if (overwritten > 0) host.free(clone);
  };
  const auto timed = [&](int times) {
    for (int i = 0; i < times; ++i) {
      host.launch(kCompute, clear);
      host.record(kCompute);
      call();
      host.record(kCompute);
    }
    host.device_sync();
  };
  for (int candidate = 0; candidate < 2; ++candidate) {
    host.device_sync();
    call();
    host.device_sync();
    const BufferId cache = host.buffer(kCache, kCompute, Category::temporary);
    host.alloc(cache);
    host.launch(kCompute, clear);
    timed(kEstimates);
    for (int i = 0; i < kWarmups; ++i) host.launch(kCompute, clear);
    timed(kRuns);
    host.free(cache);
  }
}

}  // namespace shardsim
