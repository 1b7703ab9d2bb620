// libnccl: communicators as groups of ranks in this process, collectives that move and add real data
// when all of them have come to it on their streams.
#include <nccl.h>

#include <algorithm>
#include <cstring>

#include "backends/replay/elements.h"
#include "tests/standin/machine.h"

using standin::Machine;
using standin::Rendezvous;
using Lock = std::unique_lock<std::mutex>;

namespace {

enum class What { all_gather, reduce_scatter, all_reduce, broadcast, reduce };

// A collective of all its ranks.
struct Call {
  std::shared_ptr<Rendezvous> rendezvous = std::make_shared<Rendezvous>();
  std::vector<const void*> in;  // by rank
  std::vector<void*> out;
  What what = What::all_gather;
  size_t count = 0;
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  bool same(const Call& c) const {
    return what == c.what && count == c.count && type == c.type && op == c.op && root == c.root;
  }
};

struct Group {
  int size = 0, awaited = 0, joined = 0;  // awaited < size where one rank plays alone
  std::map<int64_t, std::shared_ptr<Call>> calls;
  std::shared_ptr<int64_t> taken = std::make_shared<int64_t>(0);
  ncclResult_t error = ncclSuccess;
};

}  // namespace

// A rank's handle; without a group while a split is not complete.
struct ncclComm {
  std::shared_ptr<Group> group;
  std::shared_ptr<bool> abandoned = std::make_shared<bool>(false);
  std::vector<std::shared_ptr<Call>> mine;
  std::string key;
  int id = 0, rank = 0;
  int64_t calls = 0, splits = 0;
};

namespace {

struct Asked {
  ncclComm* comm;
  int color, key;
};

std::map<std::string, std::shared_ptr<Group>>& groups() {
  static std::map<std::string, std::shared_ptr<Group>> g;
  return g;
}
std::map<std::string, std::vector<Asked>>& splits() {
  static std::map<std::string, std::vector<Asked>> s;
  return s;
}

shardsim::DType type_of(ncclDataType_t t) {
  using shardsim::DType;
  return t == ncclFloat32    ? DType::fp32
         : t == ncclBfloat16 ? DType::bf16
         : t == ncclFloat16  ? DType::fp16
         : t == ncclInt64    ? DType::i64
                             : DType::u8;
}

ncclComm* new_comm() {
  Machine& m = Machine::get();
  auto* const c = new ncclComm;
  c->id = m.device().comms_made++;
  ++m.device().objects;
  return c;
}

void join(ncclComm* comm, const std::string& key, int size, int rank) {
  Machine& m = Machine::get();
  std::shared_ptr<Group>& g = groups()[key];
  if (!g) {
    g = std::make_shared<Group>();
    g->size = size;
    g->awaited = m.setup.alone ? 1 : size;
  }
  comm->group = g;
  comm->key = key;
  comm->rank = rank;
  ++g->joined;
}

template <class T>
void move_data(const Call& c) {
  const size_t ranks = c.in.size();
  const bool whole = c.what != What::all_gather;
  const size_t sent = c.what == What::reduce_scatter ? c.count * ranks : c.count;
  // Copies: regions may be the same.
  std::vector<std::vector<T>> in;
  for (const void* at : c.in)
    in.emplace_back(static_cast<const T*>(at), static_cast<const T*>(at) + sent);
  std::vector<T> result;
  if (c.what == What::broadcast) {
    result = in[static_cast<size_t>(c.root)];
  } else if (!whole) {
    for (const std::vector<T>& part : in) result.insert(result.end(), part.begin(), part.end());
  } else {
    for (size_t i = 0; i < sent; ++i) {
      double sum = 0;
      for (const std::vector<T>& part : in) sum += static_cast<double>(part[i].value());
      if (c.op == ncclAvg) sum /= static_cast<double>(ranks);
      result.push_back(T::from(static_cast<float>(sum)));
    }
  }
  for (size_t r = 0; r < ranks; ++r) {
    if (c.what == What::reduce && static_cast<int>(r) != c.root) continue;
    const T* const from = result.data() + (c.what == What::reduce_scatter ? r * c.count : 0);
    const size_t n = c.what == What::all_gather ? c.count * ranks : c.count;
    std::memcpy(c.out[r], from, n * sizeof(T));
  }
}

ncclResult_t collective(const char* name, What what, const void* in, void* out, size_t count,
                        ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  if (const int code = m.begin(name)) return static_cast<ncclResult_t>(code);
  Group& g = *comm->group;
  const int nth = m.device().collectives++;
  if (const standin::Fault* f = m.fault("async", nth)) g.error = static_cast<ncclResult_t>(f->code);
  const auto bytes = static_cast<int64_t>(count) * shardsim::bytes_of(type_of(type));
  const int64_t all = g.awaited == g.size ? bytes * g.size : bytes;
  const bool receives = what != What::reduce || comm->rank == root;
  if (!m.holds(in, what == What::reduce_scatter ? all : bytes) ||
      (receives && !m.holds(out, what == What::all_gather ? all : bytes)))
    return ncclInvalidArgument;
  std::shared_ptr<Call>& c = g.calls[comm->calls];
  Call mine;
  mine.what = what;
  mine.count = count;
  mine.type = type;
  mine.op = op;
  mine.root = root;
  if (!c) {
    c = std::make_shared<Call>(mine);
    c->in.resize(static_cast<size_t>(g.size));
    c->out.resize(static_cast<size_t>(g.size));
    c->rendezvous->expected = g.awaited;
    c->rendezvous->communicator = g.taken;
    c->rendezvous->duration = 10'000 + all / 100;
    if (g.awaited == g.size)
      c->rendezvous->effect = [call = c.get()] {
        shardsim::with_type(type_of(call->type), [&]<class T>(T*) { move_data<T>(*call); });
      };
  } else if (!c->same(mine)) {
    g.error = ncclInvalidUsage;
    return g.error;
  }
  c->in[static_cast<size_t>(comm->rank)] = in;
  c->out[static_cast<size_t>(comm->rank)] = out;
  if (m.fault("hang", nth) != nullptr) c->rendezvous->hangs = true;
  comm->mine.push_back(c);
  auto* const s = reinterpret_cast<standin::Stream*>(stream);
  standin::Record& r = m.record(name, s);
  r.bytes = static_cast<int64_t>(count);
  r.extra = type;
  r.in = in;
  r.out = out;
  r.comm = comm->id;
  r.m = op;
  r.n = root;
  standin::Operation o;
  o.kind = standin::Operation::Kind::collective;
  o.rendezvous = c->rendezvous;
  o.abandoned = comm->abandoned;
  m.put(s, std::move(o));
  // The first one connects, which takes NCCL's own thread a while.
  return comm->calls++ == 0 ? ncclInProgress : ncclSuccess;
}

void remove(ncclComm_t comm) {
  Machine& m = Machine::get();
  --m.device().objects;
  delete comm;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* v) {
  *v = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "an injected fault"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  if (const int code = m.begin("ncclGetUniqueId")) return static_cast<ncclResult_t>(code);
  static int64_t number = 0;
  std::memset(id->internal, 0, sizeof id->internal);
  const std::string text = "world " + std::to_string(number++);
  text.copy(id->internal, sizeof id->internal);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t*) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  if (const int code = m.begin("ncclCommInitRankConfig")) return static_cast<ncclResult_t>(code);
  *out = new_comm();
  join(*out, id.internal, size, rank);
  standin::Record& r = m.record("ncclCommInitRankConfig", nullptr);
  r.comm = (*out)->id;
  r.m = size;
  r.n = rank;
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* out, ncclConfig_t*) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  if (const int code = m.begin("ncclCommSplit")) return static_cast<ncclResult_t>(code);
  *out = new_comm();
  standin::Record& r = m.record("ncclCommSplit", nullptr);
  r.comm = (*out)->id;
  r.extra = color;
  r.k = key;
  const std::string name = parent->key + "/" + std::to_string(parent->splits++);
  std::vector<Asked>& asked = splits()[name];
  asked.push_back({*out, color, key});
  if (static_cast<int>(asked.size()) < parent->group->awaited) return ncclInProgress;
  std::sort(asked.begin(), asked.end(), [](const Asked& a, const Asked& b) {
    return std::pair(a.color, a.key) < std::pair(b.color, b.key);
  });
  for (auto from = asked.begin(); from != asked.end();) {
    const auto to =
        std::find_if(from, asked.end(), [&](const Asked& a) { return a.color != from->color; });
    int rank = 0;
    for (auto a = from; a != to; ++a)
      join(a->comm, name + ":" + std::to_string(a->color), static_cast<int>(to - from), rank++);
    from = to;
  }
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  if (const int code = m.begin("ncclCommGetAsyncError", 0)) return static_cast<ncclResult_t>(code);
  const bool ready = comm->group && comm->group->joined >= comm->group->awaited;
  *state = !ready ? ncclInProgress : comm->group->error;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  m.record("ncclCommDestroy", nullptr).comm = comm->id;
  remove(comm);
  return ncclSuccess;
}
// What this rank is in ends for it, and never for the others.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  m.record("ncclCommAbort", nullptr).comm = comm->id;
  *comm->abandoned = true;
  for (const std::shared_ptr<Call>& c : comm->mine)
    if (c->rendezvous->end < 0) c->rendezvous->hangs = true;
  m.play();
  remove(comm);
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclAllGather", What::all_gather, in, out, count, type, ncclSum, 0, comm,
                    stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclReduceScatter", What::reduce_scatter, in, out, count, type, op, 0, comm,
                    stream);
}
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclAllReduce", What::all_reduce, in, out, count, type, op, 0, comm, stream);
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclBroadcast", What::broadcast, in, out, count, type, ncclSum, root, comm,
                    stream);
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclReduce", What::reduce, in, out, count, type, op, root, comm, stream);
}

}  // extern "C"
