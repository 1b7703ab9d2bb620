#include "sim/study/sweep.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "sim/base/error.h"
#include "sim/study/parallel.h"

namespace shardsim {

namespace {

// What a killed sweep has to play again is no more than this.
constexpr auto kLongestUnwritten = std::chrono::milliseconds(500);

// Without the hint.
std::string one_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The part's points, each once, whichever thread asks.
class Points {
 public:
  Points(const Study& study, const SweepOptions& options) : study_(study), options_(options) {}

  std::optional<int64_t> next() {
    const std::lock_guard lock(mutex_);
    constexpr int64_t kOften = 65536;
    while (at_ < study_.size() && !stopped_) {
      if (++asked_ % kOften == 0 && options_.interrupted()) stopped_ = true;
      const int64_t p = at_++;
      if (!study_.left_out(p) && number_++ % options_.shards == options_.shard - 1) return p;
    }
    return std::nullopt;
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  bool stopped() const { return stopped_; }

 private:
  const Study& study_;
  const SweepOptions& options_;
  std::mutex mutex_;
  int64_t at_ = 0, number_ = 0, asked_ = 0;
  std::atomic<bool> stopped_ = false;
};

// What the threads share. A thread of its own writes what there is, however long a point takes.
class Progress {
 public:
  Progress(SweepStore& store, const SweepOptions& options, int64_t all)
      : store_(store), options_(options), finished_(store.finished()) {
    result_.points = all;
    writer_ = std::thread([this] { write_often(); });
  }
  ~Progress() { end_writer(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Whether the point has still to be played: one of those that are the same scenario.
  bool take(const StoredPoint& p) {
    const std::lock_guard lock(mutex_);
    points_.push_back(p);
    if (!finished_.insert(p.key).second) {
      ++result_.found;
      said(1);
      return false;
    }
    return true;
  }

  void add(SweepRow row) {
    const std::lock_guard lock(mutex_);
    ++result_.played;
    if (!row.error.empty()) ++result_.failed;
    rows_.push_back(std::move(row));
    said(1);
  }

  SweepResult finish(bool whole) {
    end_writer();
    const std::lock_guard lock(mutex_);
    result_.whole = whole;
    write();
    store_.require_there();
    return result_;
  }

 private:
  // Found points come faster than they can be written.
  static constexpr size_t kBatch = 4096;

  void said(int64_t more) {
    if (failure_) std::rethrow_exception(failure_);
    done_ += more;
    if (options_.progress) options_.progress(done_, result_.points, result_.found);
    if (points_.size() >= kBatch) write();
  }
  void write() {
    if (points_.empty() && rows_.empty()) return;
    store_.add(points_, rows_);
    points_.clear();
    rows_.clear();
  }
  void write_often() {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, kLongestUnwritten, [this] { return end_; })) {
      try {
        write();
      } catch (...) {
        failure_ = std::current_exception();
        return;
      }
    }
  }
  void end_writer() {
    {
      const std::lock_guard lock(mutex_);
      end_ = true;
    }
    ended_.notify_one();
    if (writer_.joinable()) writer_.join();
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  SweepStore& store_;
  const SweepOptions& options_;
  std::unordered_set<std::string> finished_;
  std::vector<StoredPoint> points_;
  std::vector<SweepRow> rows_;
  std::exception_ptr failure_;  // of the writer
  SweepResult result_;
  int64_t done_ = 0;
  bool end_ = false;
  std::thread writer_;
};

// What all points say is a mistake of the study: the first one's, whether it was played just now or in a
// sweep before.
void throw_first_error(const Study& study) {
  SweepOptions one;
  const std::optional<int64_t> first = Points(study, one).next();
  if (!first) return;
  Simulation simulation;
  sweep_row(study.scenario(*first), simulation);
}

}  // namespace

SweepResult sweep(const Study& study, SweepStore& store, const SweepOptions& options) {
  const int64_t count = study.count();
  const int64_t mine = (count - options.shard + options.shards) / options.shards;
  Progress progress(store, options, mine);
  Points points(study, options);
  const auto threads = static_cast<size_t>(
      std::clamp<int64_t>(mine, 1, static_cast<int64_t>(std::max(options.threads, 1))));
  parallel_for(threads, static_cast<int>(threads), [&](size_t) {
    try {
      Simulation simulation;
      while (const std::optional<int64_t> point = points.next()) {
        if (options.interrupted()) return points.stop();
        StoredPoint p{*point, short_key(study.key(*point)), {}};
        const std::vector<size_t> places = study.places(*point);
        for (size_t a = 0; a < places.size(); ++a)
          p.labels.push_back(study.axes()[a].places[places[a]].label);
        if (!progress.take(p)) continue;
        SweepRow row = row_or_error([&] { return study.scenario(*point); }, simulation,
                                    [](const Error& e) { return one_line(e.text()); });
        row.key = p.key;
        progress.add(std::move(row));
      }
    } catch (...) {
      points.stop();
      throw;
    }
  });
  const SweepResult result = progress.finish(!points.stopped());
  if (result.whole && options.shards == 1 && !store.any_played()) throw_first_error(study);
  return result;
}

}  // namespace shardsim
