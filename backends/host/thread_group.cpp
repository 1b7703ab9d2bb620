#include "backends/host/thread_group.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>

#include "backends/replay/communicators.h"
#include "backends/replay/elements.h"
#include "backends/replay/regions.h"

namespace shardsim {

namespace {

// out[begin, end) = the sum over all ranks of in[begin, end), divided where the operation averages.
template <class T>
void sum_into(T* out, const std::vector<Regions>& in, int64_t begin, int64_t end, bool averages) {
  const auto ranks = static_cast<double>(in.size());
  for (int64_t i = begin; i < end; ++i) {
    double sum = 0;
    for (const Regions& r : in) sum += static_cast<const T*>(r.in)[i].value();
    out[i - begin] = T::from(static_cast<float>(averages ? sum / ranks : sum));
  }
}

void sum_of(void* out, const Work& w, const std::vector<Regions>& in, DType type, int64_t begin,
            int64_t end) {
  with_type(type, [&]<class T>(T*) {
    sum_into(static_cast<T*>(out), in, begin, end, w.op == ReduceOp::avg);
  });
}

void copy(void* to, const void* from, Bytes bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

class ThreadGroup final : public RankGroup {
 public:
  ThreadGroup(ThreadRanks& ranks, int rank) : ranks_(ranks), rank_(rank) {}
  int rank() const override { return rank_; }
  int world() const override { return ranks_.world_; }
  std::string kind() const override { return fmt::format("{} threads of one process", world()); }
  void prepare(const std::vector<Comm>& comms) override { comms_ = comms; }
  void wait_for_turn(const Work& work, uint32_t sequence) override {
    const Membership me = membership(comms_[work.comm.v], rank_);
    Meeting& m = ranks_.meeting(work.comm, me.first, me.size);
    std::unique_lock lock(m.mutex);
    wait(lock, m, [&] { return m.turn == sequence; });
  }
  std::chrono::steady_clock::time_point run(const Work& work, uint32_t sequence,
                                            Regions regions) override;
  void barrier(const Limits& limits) override;
  void stop(const std::string& why) override { ranks_.stop(why); }
  std::string stopped() const override {
    if (!ranks_.stopped_) return {};
    const std::lock_guard lock(ranks_.mutex_);
    return ranks_.why_;
  }

 private:
  using Meeting = ThreadRanks::Meeting;
  // While one is there, no rank lets go of its memory; none is made once the run has been ended.
  class Copying {
   public:
    explicit Copying(ThreadRanks& ranks) : ranks_(ranks) {
      const std::lock_guard lock(ranks_.mutex_);
      if (ranks_.stopped_) throw Stopped(Stopped::Why::other_rank, ranks_.why_);
      ++ranks_.copying_;
    }
    ~Copying() {
      const std::lock_guard lock(ranks_.mutex_);
      if (--ranks_.copying_ == 0) ranks_.changed_.notify_all();
    }
    Copying(const Copying&) = delete;
    Copying& operator=(const Copying&) = delete;

   private:
    ThreadRanks& ranks_;
  };
  template <class F>
  void wait(std::unique_lock<std::mutex>& lock, Meeting& m, F&& until) {
    m.changed.wait(lock, [&] { return until() || ranks_.stopped_; });
    if (until()) return;
    lock.unlock();  // stop() takes a meeting's mutex while it holds that of the reason
    throw Stopped(Stopped::Why::other_rank, stopped());
  }
  void exchange(const Work& work, const Membership& me, Meeting& m, Regions regions);

  ThreadRanks& ranks_;
  const int rank_;
  std::vector<Comm> comms_;
};

std::chrono::steady_clock::time_point ThreadGroup::run(const Work& work, uint32_t sequence,
                                                       Regions regions) {
  const Membership me = membership(comms_[work.comm.v], rank_);
  Meeting& m = ranks_.meeting(work.comm, me.first, me.size);
  {
    std::unique_lock lock(m.mutex);
    m.regions[static_cast<size_t>(me.number)] = regions;
    if (++m.arrived == me.size) m.changed.notify_all();
    wait(lock, m, [&] { return m.arrived == me.size; });
  }
  {
    const Copying copying(ranks_);
    exchange(work, me, m, regions);
  }
  std::unique_lock lock(m.mutex);
  if (++m.left == me.size) {
    m.arrived = m.summed = m.left = 0;
    m.ended.push_back(std::chrono::steady_clock::now());
    ++m.turn;
    m.changed.notify_all();
  }
  const auto over = [&] { return m.turn > sequence; };
  wait(lock, m, over);
  return m.ended[sequence];
}

// Sums are made part by part, each rank its own, into memory of their own: inputs may be outputs.
void ThreadGroup::exchange(const Work& work, const Membership& me, Meeting& m, Regions regions) {
  const int64_t parts = parts_of(work, comms_[work.comm.v]);
  const Bytes part = work.bytes / parts;
  const DType type = moved_as(work, parts);
  const int64_t element = bytes_of(type);
  const auto in = [&](int n) { return m.regions[static_cast<size_t>(n)].in; };
  switch (work.kind) {
    case WorkKind::AllGather:
      for (int n = 0; n < me.size; ++n)
        copy(static_cast<char*>(regions.out) + n * part, in(n), part);
      return;
    case WorkKind::Broadcast: copy(regions.out, in(work.root), part); return;
    case WorkKind::ReduceScatter: {
      const int64_t count = part / element;
      std::vector<char>& own = m.partial[static_cast<size_t>(me.number)];
      own.resize(static_cast<size_t>(part));
      sum_of(own.data(), work, m.regions, type, me.number * count, (me.number + 1) * count);
      break;
    }
    case WorkKind::Reduce:
    case WorkKind::AllReduce: {
      const int64_t count = work.bytes / element;
      const int64_t begin = count * me.number / me.size, end = count * (me.number + 1) / me.size;
      std::vector<char>& own = m.partial[static_cast<size_t>(me.number)];
      own.resize(static_cast<size_t>((end - begin) * element));
      sum_of(own.data(), work, m.regions, type, begin, end);
      break;
    }
    default: return;
  }
  {
    std::unique_lock lock(m.mutex);
    if (++m.summed == me.size) m.changed.notify_all();
    wait(lock, m, [&] { return m.summed == me.size; });
  }
  if (work.kind == WorkKind::ReduceScatter) {
    copy(regions.out, m.partial[static_cast<size_t>(me.number)].data(), part);
  } else if (work.kind == WorkKind::AllReduce || me.number == work.root) {
    char* out = static_cast<char*>(regions.out);
    for (const std::vector<char>& p : m.partial) {
      copy(out, p.data(), static_cast<Bytes>(p.size()));
      out += p.size();
    }
  }
}

void ThreadGroup::barrier(const Limits& limits) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(limits.timeout_s);
  std::unique_lock lock(ranks_.mutex_);
  const uint64_t mine = ranks_.barriers_;
  if (++ranks_.waiting_ == ranks_.world_) {
    ranks_.waiting_ = 0;
    ++ranks_.barriers_;
    ranks_.changed_.notify_all();
    return;
  }
  while (ranks_.barriers_ == mine) {
    if (ranks_.stopped_) throw Stopped(Stopped::Why::other_rank, ranks_.why_);
    if (limits.interrupted()) throw Stopped(Stopped::Why::interrupted, "interrupted");
    if (Clock::now() > deadline)
      throw Stopped(Stopped::Why::timeout,
                    fmt::format("not all ranks came to a barrier in {} s", limits.timeout_s));
    ranks_.changed_.wait_for(lock, std::chrono::milliseconds(50));
  }
}

std::unique_ptr<RankGroup> ThreadRanks::group(int rank) {
  return std::make_unique<ThreadGroup>(*this, rank);
}

ThreadRanks::Meeting& ThreadRanks::meeting(CommId comm, int first, int size) {
  const std::lock_guard lock(mutex_);
  if (meetings_.size() <= comm.v) meetings_.resize(comm.v + 1);
  auto& of_comm = meetings_[comm.v];
  if (of_comm.size() <= static_cast<size_t>(first)) of_comm.resize(static_cast<size_t>(first) + 1);
  std::unique_ptr<Meeting>& m = of_comm[static_cast<size_t>(first)];
  if (!m) {
    m = std::make_unique<Meeting>();
    m->regions.resize(static_cast<size_t>(size));
    m->partial.resize(static_cast<size_t>(size));
  }
  return *m;
}

// Who waits looks at the flag under the meeting's mutex, which is taken here before it is told.
void ThreadRanks::stop(const std::string& why) {
  std::unique_lock lock(mutex_);
  if (!stopped_) {
    why_ = why;
    stopped_ = true;
    changed_.notify_all();
    for (auto& of_comm : meetings_)
      for (auto& m : of_comm) {
        if (!m) continue;
        { const std::lock_guard meeting_lock(m->mutex); }
        m->changed.notify_all();
      }
  }
  changed_.wait(lock, [&] { return copying_ == 0; });
}

}  // namespace shardsim
