// Ranks as threads that meet on loopback, or in a directory; and everything that can go wrong there.
// Each fault ends within its time-out, with one message.
#include "backends/replay/meeting.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

namespace shardsim {
namespace {

using Why = Stopped::Why;

sockaddr_in loopback(int port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<uint16_t>(port));
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}

// A port that nobody has just now.
int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a = loopback(0);
  socklen_t size = sizeof a;
  ::bind(fd, reinterpret_cast<sockaddr*>(&a), size);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &size);
  ::close(fd);
  return ntohs(a.sin_port);
}

int connected_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in a = loopback(port);
  while (::connect(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return fd;
}

Limits limits(double seconds = 20) {
  Limits l;
  l.timeout_s = seconds;
  return l;
}

using Join = std::function<std::unique_ptr<Meeting>(int rank, const Limits&)>;

Join tcp(int world) {
  return [world, port = free_port()](int rank, const Limits& l) {
    return meet_over_tcp(rank, world, "127.0.0.1", port, l);
  };
}

Join directory(int world) {
  static std::atomic<int> number = 0;
  const std::string path =
      testing::TempDir() + "meeting." + std::to_string(::getpid()) + "." + std::to_string(number++);
  return
      [world, path](int rank, const Limits& l) { return meet_in_directory(rank, world, path, l); };
}

struct Outcome {
  std::string what = "ok";
  Why why = Why::fault;
};

// Each rank of `ranks` meets and runs `body`.
std::vector<Outcome> run(const std::vector<int>& ranks, const Join& join, const Limits& l,
                         const std::function<void(Meeting&)>& body) {
  std::vector<Outcome> out(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        const std::unique_ptr<Meeting> m = join(ranks[i], l);
        body(*m);
      } catch (const Stopped& e) {
        out[i] = {e.what(), e.why()};
      }
    });
  for (std::thread& t : threads) t.join();
  return out;
}

// Looks until another rank has failed.
void work(Meeting& m) {
  for (;;) {
    m.look();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

class Meet : public testing::TestWithParam<Join (*)(int)> {};

TEST_P(Meet, GathersByRank) {
  for (const Outcome& o : run({3, 1, 0, 2}, GetParam()(4), limits(), [](Meeting& m) {
         const std::string large(1 << 20, static_cast<char>('a' + m.rank()));
         for (int i = 0; i < 3; ++i) {
           const std::vector<std::string> all = m.all_gather(large);
           ASSERT_EQ(all.size(), 4U);
           for (size_t r = 0; r < 4; ++r)
             EXPECT_TRUE(all[r] == std::string(1 << 20, static_cast<char>('a' + r))) << r;
         }
         EXPECT_EQ(m.broadcast(m.rank() == 0 ? std::string("id\0x", 4) : ""),
                   std::string("id\0x", 4));
         m.barrier();
       }))
    EXPECT_EQ(o.what, "ok");
}

TEST_P(Meet, AFailureIsTold) {
  const std::vector<Outcome> out = run({0, 1, 2}, GetParam()(3), limits(), [](Meeting& m) {
    m.barrier();
    if (m.rank() != 2) return work(m);
    m.fail("out of memory");
    throw Stopped(Why::out_of_memory, "out of memory");
  });
  EXPECT_EQ(out[0].what, "rank 2: out of memory");
  EXPECT_EQ(out[1].what, "rank 2: out of memory");
  EXPECT_EQ(out[0].why, Why::other_rank);
  EXPECT_EQ(out[2].what, "out of memory");
}

TEST_P(Meet, CtrlCEndsTheWaiting) {
  std::atomic<bool> stop = false;
  Limits l = limits(60);
  l.interrupted = [&] { return stop.load(); };
  std::thread presses([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop = true;
  });
  const auto began = std::chrono::steady_clock::now();
  for (const Outcome& o : run({0, 1}, GetParam()(3), l, work))
    EXPECT_TRUE(o.why == Why::interrupted || o.what.find(": interrupted") != std::string::npos)
        << o.what;
  presses.join();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
}

INSTANTIATE_TEST_SUITE_P(Ways, Meet, testing::Values(tcp, directory));

TEST(MeetOverTcp, AMissingRankIsNamed) {
  const int port = free_port();
  const Join join = [port](int rank, const Limits& l) {
    return meet_over_tcp(rank, 4, "127.0.0.1", port, l);
  };
  const std::string want =
      "ranks 2, 3 have not come to the meeting at 127.0.0.1:" + std::to_string(port) +
      " within 0.5 s";
  const std::vector<Outcome> out = run({0, 1}, join, limits(0.5), [](Meeting&) {});
  EXPECT_EQ(out[0].what, want);
  EXPECT_EQ(out[0].why, Why::timeout);
  EXPECT_EQ(out[1].what, want);
}

TEST(MeetOverTcp, NoRank0) {
  const int port = free_port();
  const Join join = [port](int rank, const Limits& l) {
    return meet_over_tcp(rank, 2, "127.0.0.1", port, l);
  };
  EXPECT_EQ(run({1}, join, limits(0.3), [](Meeting&) {})[0].what,
            "rank 0 does not answer at 127.0.0.1:" + std::to_string(port) +
                " within 0.3 s: Connection refused");
}

TEST(MeetOverTcp, APortInUse) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0), port = free_port();
  const sockaddr_in a = loopback(port);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a), 0);
  ASSERT_EQ(::listen(fd, 1), 0);
  const Join join = [port](int rank, const Limits& l) {
    return meet_over_tcp(rank, 2, "127.0.0.1", port, l);
  };
  EXPECT_EQ(run({0}, join, limits(), [](Meeting&) {})[0].what,
            "port " + std::to_string(port) +
                " of 127.0.0.1 is in use: the ranks need another one to meet at");
  ::close(fd);
}

TEST(MeetOverTcp, APeerThatDies) {
  const std::vector<Outcome> out = run({0, 1, 2}, tcp(3), limits(), [](Meeting& m) {
    m.barrier();
    if (m.rank() == 2) return;  // leaves in the middle
    m.all_gather("more");
  });
  EXPECT_EQ(out[0].what, "rank 2 has ended without a word: its own output says why");
  EXPECT_EQ(out[1].what, out[0].what);
}

TEST(MeetOverTcp, StrangersAreHungUpOn) {
  const int port = free_port();
  std::thread stranger([port] {
    const int http = connected_to(port), empty = connected_to(port), huge = connected_to(port);
    const std::string get = "GET / HTTP/1.1\r\n\r\n";
    // The right magic number and a length of 2^63.
    const unsigned char header[] = {0x72, 0x64, 0x68, 0x73, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80};
    EXPECT_GT(::send(http, get.data(), get.size(), MSG_NOSIGNAL), 0);
    EXPECT_GT(::send(huge, header, sizeof header, MSG_NOSIGNAL), 0);
    char byte = 0;
    EXPECT_LE(::recv(http, &byte, 1, 0), 0);
    EXPECT_LE(::recv(huge, &byte, 1, 0), 0);
    for (int fd : {http, empty, huge}) ::close(fd);
  });
  const Join join = [&](int rank, const Limits& l) {
    if (rank == 1) stranger.join();
    return meet_over_tcp(rank, 2, "127.0.0.1", port, l);
  };
  for (const Outcome& o : run({0, 1}, join, limits(), [](Meeting& m) { m.barrier(); }))
    EXPECT_EQ(o.what, "ok");
}

TEST(MeetOverTcp, SomethingElseAnswers) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0), port = free_port();
  const sockaddr_in a = loopback(port);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a), 0);
  ASSERT_EQ(::listen(fd, 1), 0);
  std::thread server([fd] {
    const int peer = ::accept(fd, nullptr, nullptr);
    EXPECT_GT(::send(peer, "220 mail ready\r\n", 16, MSG_NOSIGNAL), 0);
    ::close(peer);
  });
  const Join join = [port](int rank, const Limits& l) {
    return meet_over_tcp(rank, 2, "127.0.0.1", port, l);
  };
  EXPECT_EQ(run({1}, join, limits(), [](Meeting&) {})[0].what,
            "what answers at 127.0.0.1:" + std::to_string(port) + " is no replay's rank 0");
  server.join();
  ::close(fd);
}

TEST(MeetOverTcp, AnotherWorldAndATwin) {
  const int port = free_port();
  const auto join = [port](int world) -> Join {
    return
        [=](int rank, const Limits& l) { return meet_over_tcp(rank, world, "127.0.0.1", port, l); };
  };
  std::vector<Outcome> other;
  std::thread late([&] { other = run({3}, join(8), limits(), [](Meeting&) {}); });
  EXPECT_EQ(run({0}, join(4), limits(), [](Meeting&) {})[0].what,
            "rank 3 was started with a world of 8, rank 0 with 4");
  late.join();
  EXPECT_EQ(other[0].what, "rank 3 was started with a world of 8, rank 0 with 4");

  const std::vector<Outcome> twins = run({0, 1, 1}, join(3), limits(), [](Meeting&) {});
  EXPECT_EQ(twins[0].what, "two processes say that they are rank 1");
}

TEST(MeetInDirectory, FilesOfAnEarlierRunAreRefused) {
  const std::string path = testing::TempDir() + "stale." + std::to_string(::getpid());
  std::filesystem::create_directory(path);
  const Join join = [&](int rank, const Limits& l) { return meet_in_directory(rank, 2, path, l); };
  EXPECT_EQ(run({0}, join, limits(), [](Meeting&) {})[0].what,
            path + " is there already: an earlier run left it, remove it or name another");
  std::filesystem::remove_all(path);
}

TEST(MeetInDirectory, AMissingRankIsNamed) {
  const std::vector<Outcome> out = run({0}, directory(2), limits(0.3), [](Meeting&) {});
  EXPECT_NE(out[0].what.find("nothing from rank 1 in "), std::string::npos) << out[0].what;
  EXPECT_EQ(out[0].why, Why::timeout);
}

}  // namespace
}  // namespace shardsim
