#include "sim/schedule/state_dict.h"

#include "sim/schedule/streams.h"

namespace shardsim {

namespace {

Work moved(WorkKind kind, const StateTensor& t, Bytes bytes) {
  Work w;
  w.kind = kind;
  w.bytes = bytes;
  w.group = t.group;
  w.comm = t.comm;
  w.name = "state_dict";
  return w;
}

}  // namespace

void full_state_dict(Host& host, const std::vector<StateTensor>& tensors, bool cpu_offload) {
  for (const StateTensor& t : tensors) {
    BufferId whole;
    if (t.whole > 0) {
      BufferId local;
      if (t.on_host) {
        local = host.buffer(t.local, kCompute, Category::temporary, t.group);
        host.alloc(local);
        host.launch(kCompute, host.work(moved(WorkKind::CopyH2D, t, t.local)));
        host.stream_sync(kCompute);
      }
      whole = host.buffer(t.whole, kCompute, Category::temporary, t.group);
      host.alloc(whole);
      const EventId end = host.async_collective(
          kCompute, host.work(moved(WorkKind::AllGather, t, t.whole)), {whole});
      host.wait(kCompute, end);
      if (t.other_dim) {
        const BufferId pieces = whole;
        whole = host.buffer(t.whole, kCompute, Category::temporary, t.group);
        host.alloc(whole);
        Work cat = moved(WorkKind::Kernel, t, 2 * t.whole);
        cat.kernel = KernelClass::cat;
        host.launch(kCompute, host.work(cat));
        host.free(pieces);
      }
      if (local.valid()) host.free(local);
    }
    if (!cpu_offload || (t.on_host && t.whole == 0)) continue;
    host.launch(kCompute, host.work(moved(WorkKind::CopyD2H, t, t.numel_bytes)));
    host.stream_sync(kCompute);
    if (whole.valid()) host.free(whole);
  }
}

}  // namespace shardsim
