// The 33 vectors of spec/memory-model.md section A, played step by step. Each line is the
// specification's own: `Aa 5M@1` allocates a on stream 1 (default 0), `Fa` frees, `Ra@1` records a
// use, `C@1` ends the stream's work, `E` is empty_cache; a allocated, v active if different, r
// reserved, p its peak if different, s segments, i inactive splits count:bytes. All of them were seen
// on PyTorch 2.15 (recordings vector_01 to vector_33).
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "sim/memory/caching_allocator.h"

namespace shardsim {
namespace {

using Stats = AllocatorStatistics;

// Side streams are busy from the first recorded use on, until `C`.
class VectorClock final : public DeviceClock {
 public:
  int64_t record(StreamId stream) override { return stream; }
  bool done(int64_t event) override { return finished[static_cast<StreamId>(event)]; }
  void wait(int64_t event) override { finished[static_cast<StreamId>(event)] = true; }
  void wait_stream(StreamId) override {}
  std::map<StreamId, bool> finished;
};

// 5M, 10M+1, 768K, 10M-511, 103808512.
Bytes bytes_of(const std::string& text) {
  Bytes total = 0;
  for (size_t at = 0; at < text.size();) {
    const bool minus = text[at] == '-';
    if (text[at] == '+' || text[at] == '-') ++at;
    size_t used = 0;
    Bytes n = std::stoll(text.substr(at), &used);
    at += used;
    if (at < text.size() && text[at] == 'M') n *= kMiB, ++at;
    if (at < text.size() && text[at] == 'K') n *= kKiB, ++at;
    if (at < text.size() && text[at] == 'G') n *= kGiB, ++at;
    total += minus ? -n : n;
  }
  return total;
}

void play(const std::string& line) {
  SCOPED_TRACE(line);
  const size_t arrow = line.find("=>");
  std::string left = line.substr(0, arrow), right = line.substr(arrow + 2);
  if (const size_t hash = right.find('#'); hash != std::string::npos) right.erase(hash);
  left.erase(0, left.find(' ') + 1);  // the number

  AllocatorSettings settings;
  DeviceMemory device;
  double fraction = 1;
  if (const size_t colon = left.find(": ");
      colon != std::string::npos || left.rfind("exp:", 0) == 0) {
    std::istringstream words(left.substr(0, left.find(':')));
    left.erase(0, left.find(':') + 1);
    for (std::string w; words >> w;) {
      if (w == "exp") settings.expandable = true;
      if (w.rfind("cap", 0) == 0) device = {bytes_of(w.substr(3)), 0};
      if (w.rfind("split", 0) == 0) settings.max_split = bytes_of(w.substr(5));
      if (w.rfind("frac", 0) == 0) fraction = std::stod(w.substr(4));
      if (w.rfind("gc", 0) == 0) settings.gc_threshold = std::stod(w.substr(2));
      if (w.rfind("div", 0) == 0)
        settings = parse_allocator_settings("roundup_power2_divisions:" + w.substr(3));
    }
  }
  VectorClock clock;
  CachingAllocator allocator(settings, device, clock);
  allocator.set_memory_fraction(fraction);
  bool oom = false;
  std::istringstream steps(left);
  for (std::string step; std::getline(steps, step, ';');) {
    step.erase(0, step.find_first_not_of(' '));
    const auto slot = static_cast<uint32_t>(step.size() > 1 ? step[1] : 0);
    const size_t at = step.find('@');
    const auto stream =
        static_cast<StreamId>(at == std::string::npos ? 0 : std::stoi(step.substr(at + 1)));
    if (step[0] == 'A')
      oom = !allocator.alloc(slot, bytes_of(step.substr(3, at - 3)), stream) || oom;
    if (step[0] == 'F') allocator.free(slot);
    if (step[0] == 'R') allocator.record_stream(slot, stream);
    if (step[0] == 'C') clock.finished[stream] = true;
    if (step[0] == 'E') allocator.empty_cache();
    allocator.check_invariants();
  }

  const Stats& s = allocator.statistics();
  std::map<char, Bytes> expected;
  Bytes splits = 0, split_bytes = 0, retries = 0;
  bool expect_oom = false;
  std::istringstream words(right);
  for (std::string w; words >> w;) {
    if (w == "OOM") {
      expect_oom = true;
    } else if (w.rfind("retry", 0) == 0) {
      retries = std::stoll(w.substr(5));
    } else if (w[0] == 'i') {
      const size_t colon = w.find(':');
      splits = std::stoll(w.substr(1, colon - 1));
      split_bytes = bytes_of(w.substr(colon + 1));
    } else {
      expected[w[0]] = bytes_of(w.substr(1));
    }
  }
  const auto value = [&](char key, Bytes otherwise) {
    const auto it = expected.find(key);
    return it == expected.end() ? otherwise : it->second;
  };
  EXPECT_EQ(s.current(Stats::allocated_bytes), expected.at('a'));
  EXPECT_EQ(s.current(Stats::active_bytes), value('v', expected.at('a')));
  EXPECT_EQ(s.current(Stats::reserved_bytes), expected.at('r'));
  EXPECT_EQ(s.peak(Stats::reserved_bytes), value('p', s.peak(Stats::reserved_bytes)));
  EXPECT_EQ(s.current(Stats::segment), value('s', s.current(Stats::segment)));
  EXPECT_EQ(s.current(Stats::inactive_split), splits);
  EXPECT_EQ(s.current(Stats::inactive_split_bytes), split_bytes);
  EXPECT_EQ(s.alloc_retries, retries);
  EXPECT_EQ(oom, expect_oom);
  EXPECT_EQ(s.ooms, expect_oom ? 1 : 0);
}

TEST(AllocatorVectors, OfTheSpecification) {
  for (const char* line : {
           "1 Aa 1=> a512 r2M s1 i1:2096640",
           "2 Aa 1M+1=> a1049088 r20M s1 i1:19922432",
           "3 Aa 1M;Ab 1M;Ac 1M=> a3M r4M s2 i1:1M",
           "4 Aa 10485248=> a10485248 r20M s1 i1:10486272",
           "5 Aa 10M-511=> a10M r10M s1",
           "6 Aa 10M+1=> a10486272 r12M s1 i1:2096640",
           "7 Aa 9M;Ab 10M=> a20M r20M s1 #b keeps 11M",
           "8 Aa 100M;Fa;Ab 99M=> a100M r100M s1 #1M rest unsplit",
           "9 Aa 100M;Fa;Ab 103808512=> a103808512 r100M s1 i1:1049088",
           "10 Aa 100M;Fa;Ab 60M;Ac 41M=> a102M r142M s2 i1:40M",
           "11 Aa 100M;Fa;Ab 100M@1=> a100M r200M s2",
           "12 Aa 100M;Ra@1;Fa;Ab 100M=> a100M v200M r200M s2",
           "13 Aa 100M;Ra@1;Fa;C@1;Ab 100M=> a100M r100M s1",
           "14 Aa 100M;Ra@1;Fa;C@1=> a0 v100M r100M s1 #no malloc yet",
           "15 Aa 8M;Ab 8M;Fa;Fb;Ac 16M=> a16M r20M s1 i1:4M",
           "16 Aa 6M;Ab 6M;Ac 6M;Fa;Fc;E=> a6M r20M s1 i2:14M #pinned",
           "17 Aa 6M;Ab 6M;Ac 6M;Fa;Fc;Fb;E=> a0 r0 p20M s0",
           "18 Aa 40M;Ab 30M;Ac 24M;Fa;Fb;Fc;Ad 26M=> a26M r94M s3 i1:4M",
           "19 Aa 768K;Ab 768K;Ac 512K;Fb;Ad 600K;Ae 1M=> a2904K r4M s2 i2:1192K",
           "20 cap100M: Aa 60M;Fa;Ab 80M=> a80M r80M s1 retry1",
           "21 cap100M: Aa 60M;Fa;Ak 20M;Ab 62M=> a20M r60M s1 i1:40M retry1 OOM",
           "22 cap100M: Aa 60M;Ra@1;Fa;Ab 80M=> a80M r80M s1 retry1 #retry syncs",
           "23 cap100M frac.5: Aa 52M=> a0 r0 s0 retry1 OOM",
           "24 split128M: Aa 200M;Fa;Ab 190M=> a200M r200M s1",
           "25 split128M: Aa 200M;Fa;Ab 180M=> a180M r380M s2",
           "26 split128M cap400M: Aa 200M;Ab 150M;Fa;Fb;Ac 160M=> a160M r310M p350M s2",
           "27 div4: Aa 2100=> a2560 r2M s1 i1:2094592",
           "28 div4: Aa 19M=> a20M r20M s1",
           "29 cap1000M frac.999 gc.5: Aa 300M;Ab 300M;Fa;Fb;Ac 400M=> a400M r400M p600M s1",
           "30 exp: Aa 30M;Ab 5M;Ac 6M=> a41M r60M s0",
           "31 exp: Aa 30M;Fa;Ab 50M=> a50M r60M s0",
           "32 exp: Aa 30M;Ab 30M;Fa;E=> a30M r40M p60M s0",
           "33 exp: Aa 30M;Ab 30M@1=> a60M r80M s0",
       })
    play(line);
}

}  // namespace
}  // namespace shardsim
