#include "sim/study/sweep.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <mutex>

#include "sim/base/error.h"
#include "sim/study/parallel.h"

namespace shardsim {

namespace {

constexpr size_t kBatch = 256;
// What a killed sweep has to play again is no more than this.
constexpr auto kLongestUnwritten = std::chrono::seconds(1);

// Without the hint.
std::string one_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// What the threads share.
class Progress {
 public:
  Progress(SweepStore& store, const SweepOptions& options, int64_t all)
      : store_(store), options_(options), finished_(store.finished()) {
    result_.points = all;
    none_before_ = finished_.empty();
  }

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

  void add(SweepRow row, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    ++result_.played;
    if (!row.error.empty()) {
      ++result_.failed;
      if (!first_error_) first_error_ = error;
    }
    rows_.push_back(std::move(row));
    said(1);
  }

  SweepResult finish(bool whole) {
    const std::lock_guard lock(mutex_);
    result_.whole = whole;
    // What all points say is a mistake of the study.
    if (result_.played > 0 && result_.failed == result_.played && none_before_ && whole)
      std::rethrow_exception(first_error_);
    write();
    return result_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  void said(int64_t more) {
    done_ += more;
    if (options_.progress) options_.progress(done_, result_.points, result_.found);
    const bool due = rows_.size() >= kBatch || Clock::now() - written_ > kLongestUnwritten;
    if (due && result_.failed < result_.played) write();
  }
  void write() {
    store_.add(points_, rows_);
    points_.clear();
    rows_.clear();
    written_ = Clock::now();
  }

  std::mutex mutex_;
  SweepStore& store_;
  const SweepOptions& options_;
  std::unordered_set<std::string> finished_;
  std::vector<StoredPoint> points_;
  std::vector<SweepRow> rows_;
  std::exception_ptr first_error_;
  SweepResult result_;
  int64_t done_ = 0;
  bool none_before_ = true;  // no row was there already
  Clock::time_point written_ = Clock::now();
};

}  // namespace

SweepResult sweep(const Study& study, SweepStore& store, const SweepOptions& options) {
  std::vector<int64_t> points;
  int64_t number = 0;
  constexpr int64_t kOften = 65536;
  for (int64_t p = 0; p < study.size(); ++p) {
    if (p % kOften == 0 && options.interrupted()) return {0, 0, 0, 0, false};
    if (!study.left_out(p) && number++ % options.shards == options.shard - 1) points.push_back(p);
  }
  if (points.empty())
    throw Error("no point is left", {}, "the study's skip and only leave every point out");
  Progress progress(store, options, static_cast<int64_t>(points.size()));
  std::atomic<bool> stopped = false;
  parallel_for(points.size(), options.threads, [&](size_t i) {
    thread_local Simulation simulation;
    if (stopped || options.interrupted()) {
      stopped = true;
      return;
    }
    StoredPoint p{points[i], short_key(study.key(points[i])), {}};
    const std::vector<size_t> places = study.places(points[i]);
    for (size_t a = 0; a < places.size(); ++a)
      p.labels.push_back(study.axes()[a].places[places[a]].label);
    if (!progress.take(p)) return;
    SweepRow row;
    std::exception_ptr error;
    try {
      row = sweep_row(study.scenario(points[i]), simulation);
    } catch (const Error& e) {
      row = {};
      row.error = one_line(e.text());
      error = std::current_exception();
    } catch (const BrokenInvariant& e) {
      row = {};
      row.error = one_line(fmt::format("a fault of shardsim itself: {}", e.what()));
      error = std::current_exception();
    }
    row.key = p.key;
    progress.add(std::move(row), error);
  });
  return progress.finish(!stopped);
}

}  // namespace shardsim
