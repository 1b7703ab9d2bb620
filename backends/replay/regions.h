// What a collective sends and what arrives, as data that can be checked (pattern.h), and where the
// schedule says that it is.
// Worked number: rank 1 of 4, a reduce-scatter of 4096 B in fp32: it sends elements 0 to 1023 of its
// own, and gets the sum of elements 256 to 511 of all.
#pragma once

#include <algorithm>

#include "backends/replay/communicators.h"
#include "backends/replay/pattern.h"
#include "sim/schedule/schedule.h"

namespace shardsim {

// The type that a collective's bytes are moved as: its own, or bytes where they are no whole elements.
constexpr DType moved_as(const Work& w, int64_t parts) {
  return w.bytes % (parts * bytes_of(w.dtype)) == 0 ? w.dtype : DType::u8;
}

inline Pattern data_of(const Work& w, const Membership& m, uint32_t launch, int64_t parts) {
  Pattern p;
  p.dtype =
      moved_as(w, w.kind == WorkKind::AllGather || w.kind == WorkKind::ReduceScatter ? m.size : 1);
  p.elements = w.bytes / bytes_of(p.dtype) / parts;
  p.first = m.number;
  p.ranks = m.size;
  p.launch = launch;
  return p;
}

inline Pattern data_sent(const Work& w, const Membership& m, uint32_t launch) {
  return data_of(w, m, launch, w.kind == WorkKind::AllGather ? m.size : 1);
}

inline Pattern data_received(const Work& w, const Membership& m, uint32_t launch) {
  const bool gathers = w.kind == WorkKind::AllGather, scatters = w.kind == WorkKind::ReduceScatter;
  Pattern p = data_of(w, m, launch, gathers || scatters ? m.size : 1);
  if (gathers) {
    p.parts = m.size;
    p.first = 0;
  } else if (w.kind == WorkKind::Broadcast) {
    p.first = w.root;
  } else {
    p.of = w.op == ReduceOp::avg ? Pattern::Of::average : Pattern::Of::sum;
    if (scatters) p.offset = m.number * p.elements;
  }
  return p;
}

// The tensors of the collective at a position of the code.
class TensorLookup {
 public:
  explicit TensorLookup(const Schedule& schedule) : tensors_(schedule.tensors) {}
  const CollectiveTensors* at(uint32_t code) const {
    const auto t =
        std::lower_bound(tensors_.begin(), tensors_.end(), code,
                         [](const CollectiveTensors& x, uint32_t c) { return x.code < c; });
    return t != tensors_.end() && t->code == code ? &*t : nullptr;
  }

 private:
  const std::vector<CollectiveTensors>& tensors_;
};

}  // namespace shardsim
