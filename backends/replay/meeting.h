// Where the processes of a replay meet before and beside the devices: they compare what they are
// about to do, share NCCL's unique id, and learn that one of them has failed. Rank 0 serves on TCP
// and the others connect (meet_over_tcp), or all write files in a directory that they share
// (meet_in_directory).
//
// Worked example, 4 ranks: rank 2's all_gather("c") returns {"a", "b", "c", "d"} on all of them, or
// throws Stopped at the time-out: "rank 3 has not come to the meeting at node0:29501".
//
// A connection begins with a magic number, world size and rank, a message with its length, at most
// kMostBytes: whatever else connects to the port is hung up on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/replay/device.h"

namespace shardsim {

class Meeting {
 public:
  static constexpr size_t kMostBytes = size_t{64} << 20;

  virtual ~Meeting() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  // By rank. All ranks make the same calls in the same order.
  virtual std::vector<std::string> all_gather(const std::string& mine) = 0;
  // Throws Stopped where another rank has failed or is gone. Costs microseconds: for waiting loops.
  virtual void look() = 0;
  // Tells the others, whose calls then throw Stopped with these words.
  virtual void fail(const std::string& why) = 0;

  // What rank 0 gave.
  std::string broadcast(const std::string& from_rank_0) { return all_gather(from_rank_0)[0]; }
  void barrier() { all_gather(""); }
};

// Returns when all ranks are there.
std::unique_ptr<Meeting> meet_over_tcp(int rank, int world, const std::string& address, int port,
                                       const Limits& limits);
// `directory` is on a file system that all nodes see. Rank 0 makes it and removes it: files of an
// earlier run that died are refused, never read.
std::unique_ptr<Meeting> meet_in_directory(int rank, int world, const std::string& directory,
                                           const Limits& limits);
// A world of one.
std::unique_ptr<Meeting> meet_alone();

}  // namespace shardsim
