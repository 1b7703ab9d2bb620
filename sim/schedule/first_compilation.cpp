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

}  // namespace shardsim
