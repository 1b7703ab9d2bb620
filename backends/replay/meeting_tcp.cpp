#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "backends/replay/meeting.h"

namespace shardsim {

namespace {

using Clock = std::chrono::steady_clock;
using Why = Stopped::Why;

constexpr uint32_t kMagic = 0x73686472;  // "shdr"
constexpr size_t kMostHello = 64;
constexpr auto kSlice = std::chrono::milliseconds(50);  // between looks at Ctrl-C

enum class Kind : uint32_t { hello, data, fail, bye };

struct Header {
  uint32_t magic = kMagic;
  Kind kind = Kind::data;
  uint64_t length = 0;
};

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {
    if (fd_ < 0) return;
    fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
    fcntl(fd_, F_SETFD, FD_CLOEXEC);
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// One connection: bytes become messages here.
struct Peer {
  Socket socket;
  int rank = -1;
  std::string bytes;
  std::deque<std::pair<Kind, std::string>> messages;
  bool ended = false;     // nothing more comes
  bool stranger = false;  // what came is no message

  // Takes in what is there; never waits.
  void read(size_t most) {
    while (!ended && !stranger) {
      char block[65536];
      const ssize_t n = ::recv(socket.fd(), block, sizeof block, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n <= 0) {
        ended = true;
        return;
      }
      bytes.append(block, static_cast<size_t>(n));
      split(most);
    }
  }

 private:
  void split(size_t most) {
    size_t at = 0;
    Header h;
    while (bytes.size() - at >= sizeof h) {
      std::memcpy(&h, bytes.data() + at, sizeof h);
      if (h.magic != kMagic || h.length > most || h.kind > Kind::bye) {
        stranger = true;
        return;
      }
      if (bytes.size() - at - sizeof h < h.length) break;
      messages.emplace_back(h.kind, bytes.substr(at + sizeof h, h.length));
      at += sizeof h + h.length;
    }
    bytes.erase(0, at);
    uint32_t magic = kMagic;
    std::memcpy(&magic, bytes.data(), std::min(bytes.size(), sizeof magic));
    if (magic != kMagic && !bytes.empty()) stranger = true;
  }
};

struct Addresses {
  addrinfo* list = nullptr;
  ~Addresses() {
    if (list != nullptr) freeaddrinfo(list);
  }
};

class Tcp final : public Meeting {
 public:
  Tcp(int rank, int world, const std::string& address, int port, const Limits& limits)
      : rank_(rank),
        world_(world),
        address_(address),
        port_(std::to_string(port)),
        place_(fmt::format("{}:{}", address, port)),
        limits_(limits) {
    const Clock::time_point deadline = until();
    try {
      if (rank_ == 0)
        serve(deadline);
      else
        join(deadline);
    } catch (const Stopped& e) {
      fail(e.what());
      throw;
    }
  }

  ~Tcp() override {
    if (!failure_.empty()) return;
    try {
      for (Peer& p : peers_) send(p, Kind::bye, "", Clock::now() + kSlice);
    } catch (const Stopped&) {  // the peer is gone already
    }
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }

  std::vector<std::string> all_gather(const std::string& mine) override {
    look();
    const Clock::time_point deadline = until();
    std::vector<std::string> out(static_cast<size_t>(world_));
    if (rank_ != 0) {
      send(peers_[0], Kind::data, mine, deadline);
      unpack(receive(peers_[0], deadline), out);
      return out;
    }
    out[0] = mine;
    for (Peer& p : peers_) out[static_cast<size_t>(p.rank)] = receive(p, deadline);
    std::string all;
    for (const std::string& s : out) {
      const uint64_t length = s.size();
      all.append(reinterpret_cast<const char*>(&length), sizeof length) += s;
    }
    for (Peer& p : peers_) send(p, Kind::data, all, deadline);
    return out;
  }

  void look() override {
    if (!failure_.empty()) throw Stopped(Why::other_rank, failure_);
    for (Peer& p : peers_) take(p);
  }

  void fail(const std::string& why) override {
    if (!failure_.empty()) return;
    failure_ = fmt::format("rank {}: {}", rank_, why);
    tell(failure_);
  }

 private:
  Clock::time_point until() const {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                              std::chrono::duration<double>(limits_.timeout_s));
  }
  size_t most() const {
    return rank_ == 0 ? kMostBytes : (kMostBytes + 8) * static_cast<size_t>(world_);
  }

  void pause(const Socket& socket, short events) {
    if (limits_.interrupted()) throw Stopped(Why::interrupted, "interrupted");
    pollfd p{socket.fd(), events, 0};
    ::poll(&p, 1, static_cast<int>(kSlice.count()));
  }

  void send(Peer& peer, Kind kind, const std::string& text, Clock::time_point deadline) {
    const Header h{kMagic, kind, text.size()};
    std::string all(reinterpret_cast<const char*>(&h), sizeof h);
    all += text;
    size_t sent = 0;
    while (sent < all.size()) {
      const ssize_t n =
          ::send(peer.socket.fd(), all.data() + sent, all.size() - sent, MSG_NOSIGNAL);
      if (n > 0) {
        sent += static_cast<size_t>(n);
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (Clock::now() > deadline)
          throw Stopped(Why::timeout, fmt::format("rank {} takes no message within {:g} s",
                                                  peer.rank, limits_.timeout_s));
        pause(peer.socket, POLLOUT);
      } else if (errno != EINTR) {
        take(peer);  // it may have said why
        lost(peer);
      }
    }
  }

  // Messages that are there; news of failures are thrown and passed on.
  void take(Peer& p) {
    p.read(most());
    for (const auto& [kind, text] : p.messages)
      if (kind == Kind::fail) {
        if (rank_ == 0) tell(text);
        failure_ = text;
        throw Stopped(Why::other_rank, failure_);
      }
    if (p.stranger || (p.ended && p.messages.empty())) lost(p);
  }

  [[noreturn]] void lost(const Peer& p) {
    failure_ = fmt::format("rank {} has ended without a word: its own output says why", p.rank);
    if (rank_ == 0) tell(failure_);
    throw Stopped(Why::other_rank, failure_);
  }

  void tell(const std::string& failure) {
    for (Peer& p : peers_) try {
        send(p, Kind::fail, failure, Clock::now() + std::chrono::seconds(1));
      } catch (const Stopped&) {  // that rank has ended too
      }
  }

  std::string receive(Peer& p, Clock::time_point deadline) {
    for (;;) {
      take(p);
      if (!p.messages.empty()) {
        auto [kind, text] = std::move(p.messages.front());
        if (kind == Kind::bye) lost(p);
        p.messages.pop_front();
        return std::move(text);
      }
      for (Peer& other : peers_)
        if (&other != &p) take(other);
      if (Clock::now() > deadline)
        throw Stopped(Why::timeout, fmt::format("no message from rank {} within {:g} s", p.rank,
                                                limits_.timeout_s));
      pause(p.socket, POLLIN);
    }
  }

  static void unpack(const std::string& all, std::vector<std::string>& out) {
    size_t at = 0;
    for (std::string& s : out) {
      uint64_t length = 0;
      if (all.size() - at < sizeof length) break;
      std::memcpy(&length, all.data() + at, sizeof length);
      at += sizeof length;
      s = all.substr(at, length);
      at += s.size();
    }
  }

  addrinfo* resolve(Addresses& addresses, int flags) const {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    const int code = getaddrinfo(flags != 0 ? nullptr : address_.c_str(), port_.c_str(), &hints,
                                 &addresses.list);
    if (code != 0) reason_ = gai_strerror(code);
    return addresses.list;
  }

  // Rank 0.
  Socket listening() const {
    // The address itself, so that nobody else is listened to; where it is not this node's own
    // (a name that a router translates), all of this node's.
    for (const int flags : {0, AI_PASSIVE}) {
      Addresses addresses;
      for (addrinfo* a = resolve(addresses, flags); a != nullptr; a = a->ai_next) {
        Socket s(::socket(a->ai_family, a->ai_socktype, a->ai_protocol));
        if (!s.open()) continue;
        const int on = 1;
        setsockopt(s.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (::bind(s.fd(), a->ai_addr, a->ai_addrlen) == 0 && ::listen(s.fd(), 1024) == 0) return s;
        reason_ = std::strerror(errno);
        if (errno == EADDRINUSE)
          throw Stopped(
              Why::fault,
              fmt::format("port {} of {} is in use: the ranks need another one to meet at", port_,
                          address_));
      }
    }
    throw Stopped(Why::fault, fmt::format("cannot listen at {}: {}", place_, reason_));
  }

  void serve(Clock::time_point deadline) {
    const Socket listener = listening();
    std::vector<Peer> waiting;
    std::vector<bool> here(static_cast<size_t>(world_), false);
    here[0] = true;
    size_t strangers = 0;
    while (peers_.size() + 1 < static_cast<size_t>(world_)) {
      if (Clock::now() > deadline) missing(here, strangers);
      pause(listener, POLLIN);
      for (int fd = 0; (fd = ::accept(listener.fd(), nullptr, nullptr)) >= 0;) {
        if (waiting.size() > 64 + 4 * static_cast<size_t>(world_)) waiting.erase(waiting.begin());
        waiting.emplace_back().socket = Socket(fd);
      }
      for (Peer& p : peers_) take(p);
      for (Peer& p : waiting) {
        p.read(kMostHello);
        if (!p.messages.empty() && !p.stranger) greet(p, here);
      }
      strangers += std::erase_if(
          waiting, [](const Peer& p) { return p.socket.open() && (p.stranger || p.ended); });
      std::erase_if(waiting, [](const Peer& p) { return !p.socket.open(); });
    }
    std::sort(peers_.begin(), peers_.end(),
              [](const Peer& a, const Peer& b) { return a.rank < b.rank; });
    for (Peer& p : peers_) send(p, Kind::data, "", deadline);
  }

  void greet(Peer& p, std::vector<bool>& here) {
    int its_world = 0, its_rank = 0;
    const auto& [kind, text] = p.messages.front();
    if (kind != Kind::hello || text.size() != 2 * sizeof(int)) {
      p.stranger = true;
      return;
    }
    std::memcpy(&its_world, text.data(), sizeof(int));
    std::memcpy(&its_rank, text.data() + sizeof(int), sizeof(int));
    std::string why;
    if (its_world != world_)
      why = fmt::format("rank {} was started with a world of {}, rank 0 with {}", its_rank,
                        its_world, world_);
    else if (its_rank <= 0 || its_rank >= world_)
      why = fmt::format("a process says that it is rank {} of {}", its_rank, world_);
    else if (here[static_cast<size_t>(its_rank)])
      why = fmt::format("two processes say that they are rank {}", its_rank);
    p.messages.pop_front();
    p.rank = its_rank;
    peers_.push_back(std::move(p));
    if (!why.empty()) {
      tell(why);
      failure_ = why;
      throw Stopped(Why::fault, why);
    }
    here[static_cast<size_t>(its_rank)] = true;
  }

  [[noreturn]] void missing(const std::vector<bool>& here, size_t strangers) {
    std::string who;
    int count = 0;
    for (int r = 0; r < world_; ++r) {
      if (here[static_cast<size_t>(r)]) continue;
      if (++count <= 8) who += fmt::format("{}{}", count == 1 ? "" : ", ", r);
    }
    if (count > 8) who += fmt::format(" and {} more", count - 8);
    std::string why = fmt::format("rank{} {} {} not come to the meeting at {} within {:g} s",
                                  count == 1 ? "" : "s", who, count == 1 ? "has" : "have", place_,
                                  limits_.timeout_s);
    if (strangers > 0) why += fmt::format("; {} connections were not of a replay", strangers);
    tell(why);
    failure_ = why;
    throw Stopped(Why::timeout, why);
  }

  // The other ranks.
  bool connect(Peer& p, Clock::time_point deadline) {
    Addresses addresses;
    for (addrinfo* a = resolve(addresses, 0); a != nullptr; a = a->ai_next) {
      Socket s(::socket(a->ai_family, a->ai_socktype, a->ai_protocol));
      if (!s.open()) continue;
      int code = ::connect(s.fd(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
      while (code == EINPROGRESS && Clock::now() <= deadline) {
        pause(s, POLLOUT);
        pollfd ready{s.fd(), POLLOUT, 0};
        if (::poll(&ready, 1, 0) <= 0) continue;
        socklen_t size = sizeof code;
        getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &code, &size);
        break;
      }
      if (code == 0) {
        p.socket = std::move(s);
        return true;
      }
      if (code != EINPROGRESS) reason_ = std::strerror(code);
    }
    return false;
  }

  void join(Clock::time_point deadline) {
    Peer server;
    server.rank = 0;
    while (!connect(server, deadline)) {
      if (Clock::now() > deadline)
        throw Stopped(Why::timeout, fmt::format("rank 0 does not answer at {} within {:g} s: {}",
                                                place_, limits_.timeout_s, reason_));
      if (limits_.interrupted()) throw Stopped(Why::interrupted, "interrupted");
      std::this_thread::sleep_for(kSlice);
    }
    peers_.push_back(std::move(server));
    std::string hello(2 * sizeof(int), '\0');
    std::memcpy(hello.data(), &world_, sizeof(int));
    std::memcpy(hello.data() + sizeof(int), &rank_, sizeof(int));
    send(peers_[0], Kind::hello, hello, deadline);
    // Rank 0 gives up first and says who is missing.
    try {
      receive(peers_[0], deadline + std::chrono::seconds(2));
    } catch (const Stopped& e) {
      if (peers_[0].stranger)
        throw Stopped(Why::fault, fmt::format("what answers at {} is no replay's rank 0", place_));
      throw;
    }
  }

  const int rank_, world_;
  const std::string address_, port_, place_;
  const Limits limits_;
  std::vector<Peer> peers_;  // rank 0: all others, by rank; else rank 0
  std::string failure_;
  mutable std::string reason_ = "no address";
};

}  // namespace

std::unique_ptr<Meeting> meet_over_tcp(int rank, int world, const std::string& address, int port,
                                       const Limits& limits) {
  return std::make_unique<Tcp>(rank, world, address, port, limits);
}

}  // namespace shardsim
