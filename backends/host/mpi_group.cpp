#include "backends/host/mpi_group.h"

#include <fmt/format.h>
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "backends/replay/communicators.h"
#include "backends/replay/elements.h"
#include "backends/replay/regions.h"
#include "sim/base/error.h"

namespace shardsim {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kNews = 1, kDone = 2;  // tags
constexpr size_t kLongestNews = 4096;

template <class T>
void add(void* in, void* inout, int* count, MPI_Datatype*) {
  const T* const a = static_cast<const T*>(in);
  T* const b = static_cast<T*>(inout);
  for (int i = 0; i < *count; ++i) b[i] = T::from(a[i].value() + b[i].value());
}

void must(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Stopped(Stopped::Why::fault,
                fmt::format("{}: {}", call, std::string(text, static_cast<size_t>(length))));
}

MPI_Datatype mpi_type(DType type) {
  switch (type) {
    case DType::fp32: return MPI_FLOAT;
    case DType::bf16:
    case DType::fp16: return MPI_UINT16_T;
    case DType::i64: return MPI_INT64_T;
    case DType::fp8:
    case DType::u8: return MPI_UINT8_T;
  }
  return MPI_BYTE;
}

void divide(void* data, DType type, int64_t count, int ranks) {
  with_type(type, [&]<class T>(T*) {
    T* const x = static_cast<T*>(data);
    for (int64_t i = 0; i < count; ++i) x[i] = T::from(static_cast<float>(x[i].value() / ranks));
  });
}

class MpiGroup final : public MpiProcess {
 public:
  MpiGroup();
  ~MpiGroup() override;
  int rank() const override { return rank_; }
  int world() const override { return world_; }
  std::string kind() const override { return fmt::format("{} processes under MPI", world_); }
  void prepare(const std::vector<Comm>& comms) override;
  void wait_for_turn(const Work& work, uint32_t sequence) override;
  Clock::time_point run(const Work& work, uint32_t sequence, Regions regions) override;
  void barrier(const Limits& limits) override;
  void stop(const std::string& why) override;
  bool writes_after_stop() const override { return true; }
  std::string stopped() const override;
  std::vector<std::string> exchange(const std::string& text) override;
  [[noreturn]] void leave(int code) override;

 private:
  struct Communicator {
    MPI_Comm comm = MPI_COMM_NULL;
    Membership me;
    uint32_t turn = 0;
    std::vector<char> whole;  // for what MPI does not do in place
  };
  void finish(MPI_Request& request);
  MPI_Op sum(DType type) const {
    return type == DType::bf16 ? add_bf16_ : type == DType::fp16 ? add_fp16_ : MPI_SUM;
  }
  void start(const Work& work, Communicator& c, Regions r, MPI_Request& request);

  int rank_ = 0, world_ = 1;
  MPI_Comm all_ = MPI_COMM_NULL, news_ = MPI_COMM_NULL;
  MPI_Op add_bf16_ = MPI_OP_NULL, add_fp16_ = MPI_OP_NULL;
  std::vector<Comm> comms_;
  std::vector<Communicator> communicators_;
  std::mutex turns_;
  std::condition_variable turned_;
  mutable std::mutex mutex_;  // of what follows
  mutable std::vector<char> arriving_ = std::vector<char>(kLongestNews);
  mutable MPI_Request arrival_ = MPI_REQUEST_NULL;
  mutable std::string why_;
  std::vector<MPI_Request> sent_;
  std::string news_text_;
};

MpiGroup::MpiGroup() {
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS ||
      provided < MPI_THREAD_MULTIPLE)
    throw Error("this MPI does not allow calls from several threads", {},
                "a rank's streams are threads: an MPI with MPI_THREAD_MULTIPLE is needed");
  MPI_Comm_dup(MPI_COMM_WORLD, &all_);
  MPI_Comm_dup(MPI_COMM_WORLD, &news_);
  MPI_Comm_set_errhandler(all_, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(news_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(all_, &rank_);
  MPI_Comm_size(all_, &world_);
  MPI_Op_create(add<Bf16>, 1, &add_bf16_);
  MPI_Op_create(add<Fp16>, 1, &add_fp16_);
  MPI_Irecv(arriving_.data(), static_cast<int>(kLongestNews), MPI_CHAR, MPI_ANY_SOURCE, kNews,
            news_, &arrival_);
}

MpiGroup::~MpiGroup() {
  MPI_Cancel(&arrival_);
  MPI_Request_free(&arrival_);
  for (Communicator& c : communicators_)
    if (c.comm != MPI_COMM_NULL) MPI_Comm_free(&c.comm);
  MPI_Op_free(&add_bf16_);
  MPI_Op_free(&add_fp16_);
  MPI_Comm_free(&all_);
  MPI_Comm_free(&news_);
  MPI_Finalize();
}

void MpiGroup::prepare(const std::vector<Comm>& comms) {
  comms_ = comms;
  communicators_.resize(comms.size());
  for (size_t i = 0; i < comms.size(); ++i) {
    Communicator& c = communicators_[i];
    c.me = membership(comms[i], rank_);
    must(MPI_Comm_split(all_, c.me.first, c.me.number, &c.comm), "MPI_Comm_split");
    MPI_Comm_set_errhandler(c.comm, MPI_ERRORS_RETURN);
  }
}

// Polls; in between looks for news, and lets the other ranks of this machine run.
void MpiGroup::finish(MPI_Request& request) {
  for (int done = 0;;) {
    must(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return;
    if (std::string why = stopped(); !why.empty()) throw Stopped(Stopped::Why::other_rank, why);
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void MpiGroup::wait_for_turn(const Work& work, uint32_t sequence) {
  Communicator& c = communicators_[work.comm.v];
  std::unique_lock lock(turns_);
  while (c.turn != sequence) {
    turned_.wait_for(lock, std::chrono::milliseconds(50));
    if (std::string why = stopped(); !why.empty()) throw Stopped(Stopped::Why::other_rank, why);
  }
}

void MpiGroup::start(const Work& work, Communicator& c, Regions r, MPI_Request& request) {
  const int64_t parts = parts_of(work, comms_[work.comm.v]);
  const DType type = moved_as(work, parts);
  const int64_t elements = work.bytes / parts / bytes_of(type);
  if (elements > INT_MAX)
    throw Stopped(Stopped::Why::fault, fmt::format("a collective of {} bytes is too large for MPI; "
                                                   "a larger --scale makes it smaller",
                                                   work.bytes));
  const int count = static_cast<int>(elements);
  const MPI_Datatype t = mpi_type(type);
  const bool in_place = r.in == r.out;
  const void* const in = in_place ? MPI_IN_PLACE : r.in;
  switch (work.kind) {
    case WorkKind::AllGather: {
      const bool own = r.in == static_cast<char*>(r.out) + c.me.number * work.bytes / parts;
      return must(
          MPI_Iallgather(own ? MPI_IN_PLACE : r.in, count, t, r.out, count, t, c.comm, &request),
          "MPI_Iallgather");
    }
    case WorkKind::ReduceScatter:
      c.whole.resize(static_cast<size_t>(work.bytes / parts));
      return must(
          MPI_Ireduce_scatter_block(r.in, c.whole.data(), count, t, sum(type), c.comm, &request),
          "MPI_Ireduce_scatter_block");
    case WorkKind::AllReduce:
      return must(MPI_Iallreduce(in, r.out, count, t, sum(type), c.comm, &request),
                  "MPI_Iallreduce");
    case WorkKind::Reduce: {
      const bool root = c.me.number == work.root;
      return must(
          MPI_Ireduce(root ? in : r.in, r.out, count, t, sum(type), work.root, c.comm, &request),
          "MPI_Ireduce");
    }
    case WorkKind::Broadcast:
      if (!in_place && c.me.number == work.root && work.bytes > 0)
        std::memcpy(r.out, r.in, static_cast<size_t>(work.bytes));
      return must(MPI_Ibcast(r.out, count, t, work.root, c.comm, &request), "MPI_Ibcast");
    default: return;
  }
}

Clock::time_point MpiGroup::run(const Work& work, uint32_t sequence, Regions r) {
  Communicator& c = communicators_[work.comm.v];
  MPI_Request request = MPI_REQUEST_NULL;
  start(work, c, r, request);
  finish(request);
  const int64_t parts = parts_of(work, comms_[work.comm.v]);
  const Bytes received = work.kind == WorkKind::ReduceScatter ? work.bytes / parts : work.bytes;
  if (work.kind == WorkKind::ReduceScatter && received > 0)
    std::memcpy(r.out, c.whole.data(), static_cast<size_t>(received));
  const DType type = moved_as(work, parts);
  if (work.op == ReduceOp::avg) divide(r.out, type, received / bytes_of(type), c.me.size);
  const Clock::time_point end = Clock::now();
  const std::lock_guard lock(turns_);
  c.turn = sequence + 1;
  turned_.notify_all();
  return end;
}

void MpiGroup::barrier(const Limits& limits) {
  MPI_Request request = MPI_REQUEST_NULL;
  must(MPI_Ibarrier(all_, &request), "MPI_Ibarrier");
  const auto deadline = Clock::now() + std::chrono::duration<double>(limits.timeout_s);
  for (int done = 0;;) {
    must(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return;
    if (std::string why = stopped(); !why.empty()) throw Stopped(Stopped::Why::other_rank, why);
    if (limits.interrupted()) throw Stopped(Stopped::Why::interrupted, "interrupted");
    if (Clock::now() > deadline)
      throw Stopped(Stopped::Why::timeout,
                    fmt::format("not all ranks came to a barrier in {} s", limits.timeout_s));
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void MpiGroup::stop(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!why_.empty()) return;
  why_ = why;
  news_text_ = why.substr(0, kLongestNews);
  for (int r = 0; r < world_; ++r) {
    if (r == rank_) continue;
    MPI_Isend(news_text_.data(), static_cast<int>(news_text_.size()), MPI_CHAR, r, kNews, news_,
              &sent_.emplace_back());
  }
}

std::string MpiGroup::stopped() const {
  const std::lock_guard lock(mutex_);
  if (!why_.empty() || arrival_ == MPI_REQUEST_NULL) return why_;
  int arrived = 0;
  MPI_Status status;
  MPI_Test(&arrival_, &arrived, &status);
  if (arrived == 0) return why_;
  int length = 0;
  MPI_Get_count(&status, MPI_CHAR, &length);
  why_.assign(arriving_.data(), static_cast<size_t>(length));
  return why_;
}

std::vector<std::string> MpiGroup::exchange(const std::string& text) {
  const size_t ranks = static_cast<size_t>(world_);
  const int mine = static_cast<int>(text.size());
  std::vector<int> sizes(ranks), places(ranks);
  must(MPI_Allgather(&mine, 1, MPI_INT, sizes.data(), 1, MPI_INT, all_), "MPI_Allgather");
  int total = 0;
  for (size_t r = 0; r < ranks; ++r) {
    places[r] = total;
    total += sizes[r];
  }
  std::string whole(static_cast<size_t>(total), ' ');
  must(MPI_Allgatherv(text.data(), mine, MPI_CHAR, whole.data(), sizes.data(), places.data(),
                      MPI_CHAR, all_),
       "MPI_Allgatherv");
  std::vector<std::string> out;
  for (size_t r = 0; r < ranks; ++r)
    out.push_back(whole.substr(static_cast<size_t>(places[r]), static_cast<size_t>(sizes[r])));
  return out;
}

void MpiGroup::leave(int code) {
  const char done = 1;
  std::vector<MPI_Request> requests;
  std::vector<char> theirs(static_cast<size_t>(world_));
  for (int r = 0; r < world_; ++r) {
    if (r == rank_) continue;
    MPI_Isend(&done, 1, MPI_CHAR, r, kDone, news_, &requests.emplace_back());
    MPI_Irecv(&theirs[static_cast<size_t>(r)], 1, MPI_CHAR, r, kDone, news_,
              &requests.emplace_back());
  }
  constexpr auto kPatience = std::chrono::seconds(5);
  const auto deadline = Clock::now() + kPatience;
  for (int all = 0; all == 0 && Clock::now() < deadline;) {
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &all, MPI_STATUSES_IGNORE);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  MPI_Abort(MPI_COMM_WORLD, code);
  std::abort();
}

}  // namespace

bool has_mpi() { return true; }

std::unique_ptr<MpiProcess> mpi_process() { return std::make_unique<MpiGroup>(); }

}  // namespace shardsim
