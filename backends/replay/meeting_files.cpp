#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "backends/replay/meeting.h"

namespace shardsim {

namespace {

using Clock = std::chrono::steady_clock;
using Why = Stopped::Why;
namespace fs = std::filesystem;

constexpr auto kPause = std::chrono::milliseconds(20);
constexpr auto kBetweenLooks = std::chrono::milliseconds(200);

class Files final : public Meeting {
 public:
  Files(int rank, int world, const std::string& directory, const Limits& limits)
      : rank_(rank), world_(world), directory_(directory), limits_(limits) {
    std::error_code code;
    if (rank_ == 0 && !fs::create_directory(directory_, code))
      throw Stopped(Why::fault, code ? fmt::format("cannot make {}: {}", directory, code.message())
                                     : fmt::format("{} is there already: an earlier run left it, "
                                                   "remove it or name another",
                                                   directory));
    const std::string nonce =
        fmt::format("{:08x}{:08x}", std::random_device{}(), std::random_device{}());
    wait_for([&] { return fs::is_directory(directory_, code); }, 0);
    if (fs::exists(file("hello", rank_), code)) left_over();
    write(file("hello", rank_), nonce);
    if (rank_ == 0) {
      std::string all;
      for (int r = 0; r < world_; ++r) all += await(file("hello", r), r) + "\n";
      write(directory_ / "welcome", all);
    } else if (await(directory_ / "welcome", 0).find(nonce) == std::string::npos) {
      left_over();
    }
    met_ = true;
  }

  // Rank 0 takes the directory away when the others have left, or after two seconds.
  ~Files() override {
    std::error_code code;
    if (!fs::is_directory(directory_, code) || !met_) return;
    try {
      write(file("bye", rank_), "");
    } catch (const Stopped&) {  // the file system is full: the directory stays
      return;
    }
    if (rank_ != 0) return;
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(2);
    for (int r = 1; r < world_; ++r)
      while (!fs::exists(file("bye", r), code) && Clock::now() < deadline)
        std::this_thread::sleep_for(kPause);
    fs::remove_all(directory_, code);
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }

  std::vector<std::string> all_gather(const std::string& mine) override {
    const std::string round = std::to_string(round_++);
    write(file(round, rank_), mine);
    std::vector<std::string> out;
    out.reserve(static_cast<size_t>(world_));
    for (int r = 0; r < world_; ++r) out.push_back(await(file(round, r), r));
    // All have written this round, so all have read the one before.
    std::error_code code;
    if (round_ > 1) fs::remove(file(std::to_string(round_ - 2), rank_), code);
    return out;
  }

  void look() override {
    const Clock::time_point now = Clock::now();
    if (now < next_look_) return;
    next_look_ = now + kBetweenLooks;
    std::error_code code;
    if (failed_ || fs::exists(directory_ / "failed", code))
      throw Stopped(Why::other_rank, read(directory_ / "failed"));
  }

  void fail(const std::string& why) override {
    std::error_code code;
    if (!fs::exists(directory_ / "failed", code))
      write(directory_ / "failed", fmt::format("rank {}: {}", rank_, why));
    failed_ = true;
  }

 private:
  fs::path file(const std::string& what, int rank) const {
    return directory_ / fmt::format("{}.{}", what, rank);
  }
  [[noreturn]] void left_over() const {
    throw Stopped(Why::fault,
                  fmt::format("{} has files of an earlier run: remove it or name another",
                              directory_.string()));
  }

  // Whole or not at all.
  void write(const fs::path& path, const std::string& text) const {
    fs::path unfinished = path;
    unfinished += fmt::format(".unfinished.{}", rank_);
    std::ofstream out(unfinished, std::ios::binary);
    out << text;
    out.close();
    std::error_code code;
    if (out) fs::rename(unfinished, path, code);
    if (!out || code) throw Stopped(Why::fault, fmt::format("cannot write {}", path.string()));
  }
  static std::string read(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  template <class F>
  void wait_for(F&& there, int rank) {
    const auto deadline = Clock::now() + std::chrono::duration<double>(limits_.timeout_s);
    while (!there()) {
      look();
      if (limits_.interrupted()) throw Stopped(Why::interrupted, "interrupted");
      if (Clock::now() > deadline)
        throw Stopped(Why::timeout, fmt::format("nothing from rank {} in {} within {:g} s", rank,
                                                directory_.string(), limits_.timeout_s));
      std::this_thread::sleep_for(kPause);
    }
  }
  std::string await(const fs::path& path, int rank) {
    std::error_code code;
    wait_for([&] { return fs::exists(path, code); }, rank);
    const uintmax_t size = fs::file_size(path, code);
    if (code || size > kMostBytes)
      throw Stopped(Why::fault, fmt::format("{} is no message of a replay", path.string()));
    return read(path);
  }

  const int rank_, world_;
  const fs::path directory_;
  const Limits limits_;
  int round_ = 0;
  bool failed_ = false, met_ = false;
  Clock::time_point next_look_;
};

}  // namespace

std::unique_ptr<Meeting> meet_in_directory(int rank, int world, const std::string& directory,
                                           const Limits& limits) {
  return std::make_unique<Files>(rank, world, directory, limits);
}

}  // namespace shardsim
