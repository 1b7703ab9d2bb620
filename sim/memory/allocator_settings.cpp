#include "sim/memory/allocator_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/spelling.h"

namespace shardsim {

namespace {

const std::vector<std::string_view> kOptions = {"backend",
                                                "expandable_segments",
                                                "expandable_segments_reserve",
                                                "expandable_segments_reserve_by_class",
                                                "garbage_collection_threshold",
                                                "graph_capture_record_stream_reuse",
                                                "large_segment_size_mb",
                                                "max_non_split_rounding_mb",
                                                "max_split_size_mb",
                                                "per_process_memory_fraction",
                                                "pinned_free_catch_all",
                                                "pinned_max_cached_size_mb",
                                                "pinned_max_round_threshold_mb",
                                                "pinned_num_register_threads",
                                                "pinned_reserve_segment_size_mb",
                                                "pinned_use_background_threads",
                                                "pinned_use_cuda_host_register",
                                                "release_lock_on_cudamalloc",
                                                "roundup_power2_divisions",
                                                "throw_on_cudamalloc_oom"};

// Words and the signs , : [ ] in order; white space means nothing.
std::vector<std::string> tokens(std::string_view text) {
  std::vector<std::string> out;
  bool open = false;
  for (const char c : text) {
    if (c == ',' || c == ':' || c == '[' || c == ']') {
      out.emplace_back(1, c);
      open = false;
    } else if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      if (!open) out.emplace_back();
      out.back() += c;
      open = true;
    }
  }
  return out;
}

class Parser {
 public:
  Parser(std::string_view text, const AllocatorSettings& running)
      : text_(text), tokens_(tokens(text)), out_(running) {
    const AllocatorSettings fresh;
    out_.max_split = fresh.max_split;
    out_.max_non_split_rounding = 0;
    out_.roundup_divisions = fresh.roundup_divisions;
    out_.roundup = fresh.roundup;
    out_.gc_threshold = fresh.gc_threshold;
  }

  AllocatorSettings parse() {
    while (at_ < tokens_.size()) {
      option(next());
      option_.clear();
      if (at_ < tokens_.size()) expect(",");
    }
    if (out_.max_non_split_rounding == 0) out_.max_non_split_rounding = out_.large_segment;
    return out_;
  }

 private:
  // The key of the Error is the option that was being read.
  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const {
    if (!option_.empty()) throw Error::at(option_, what, hint);
    throw Error(fmt::format("allocator settings '{}': {}", text_, what), {}, hint);
  }
  std::string next() {
    if (at_ == tokens_.size()) fail("the text ends before a value");
    return tokens_[at_++];
  }
  bool peek(std::string_view token) const { return at_ < tokens_.size() && tokens_[at_] == token; }
  void expect(std::string_view token) {
    const std::string got = next();
    if (got != token) fail(fmt::format("expected '{}', got '{}'", token, got));
  }

  int64_t whole(const std::string& word) const {
    int64_t n = 0;
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), n);
    if (problem != std::errc() || end != word.data() + word.size() || n < 0)
      fail(fmt::format("expected a whole number, got '{}'", word));
    return n;
  }
  double number(const std::string& word) const {
    double x = 0;
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), x);
    if (problem != std::errc() || end != word.data() + word.size() || !std::isfinite(x))
      fail(fmt::format("expected a number, got '{}'", word));
    return x;
  }
  bool truth() {
    const std::string word = next();
    if (word != "True" && word != "False")
      fail(fmt::format("expected True or False, got '{}'", word));
    return word == "True";
  }
  Bytes mebibytes(int64_t least) {
    const int64_t n = whole(next());
    if (n < least) fail(fmt::format("must be at least {}, got {}", least, n));
    return std::min(n, INT64_MAX / kMiB) * kMiB;
  }

  void option(const std::string& key) {
    const bool known = std::find(kOptions.begin(), kOptions.end(), key) != kOptions.end();
    if (!known)
      fail(fmt::format("there is no option '{}'", key), spelling_hint(key, kOptions, "options"));
    option_ = key;
    expect(":");
    if (key == "max_split_size_mb") {
      out_.max_split = mebibytes(out_.large_segment / kMiB);
    } else if (key == "max_non_split_rounding_mb") {
      out_.max_non_split_rounding = mebibytes(out_.large_segment / kMiB);
    } else if (key == "large_segment_size_mb") {
      out_.large_segment = mebibytes(kMinLargeSegment / kMiB + 1);
    } else if (key == "garbage_collection_threshold") {
      out_.gc_threshold = number(next());
      if (!(out_.gc_threshold > 0 && out_.gc_threshold < 1)) fail("must be above 0 and below 1");
    } else if (key == "per_process_memory_fraction") {
      out_.memory_fraction = number(next());
      if (!(out_.memory_fraction >= 0 && out_.memory_fraction <= 1)) fail("must be from 0 to 1");
    } else if (key == "expandable_segments") {
      out_.expandable = truth();
    } else if (key == "roundup_power2_divisions") {
      divisions();
    } else if (key == "expandable_segments_reserve") {
      reserve();
    } else if (key == "backend") {
      const std::string word = next();
      if (word != "native")
        fail(fmt::format("'{}' is not simulated", word), "the caching allocator is backend:native");
    } else if (key == "throw_on_cudamalloc_oom") {
      if (truth()) fail("True is not simulated");
    } else {
      skip();  // pinned memory, locks and graphs: nothing that this allocator holds
    }
  }

  void skip() {
    if (!peek("[")) {
      next();
      return;
    }
    while (next() != "]") {
    }
  }

  void reserve() {
    std::string word = next();
    const bool gib = !word.empty() && (word.back() == 'G' || word.back() == 'g');
    if (gib) word.pop_back();
    const double x = number(word);
    if (!(x > 0)) fail("must be above 0");
    if (gib)
      out_.range_bytes = static_cast<Bytes>(std::min(x, 1e9) * static_cast<double>(kGiB));
    else
      out_.range_fraction = x;
  }

  int64_t division(const std::string& word, bool zero_too) {
    const int64_t n = whole(word);
    if (!(n == 0 && zero_too) && !std::has_single_bit(static_cast<uint64_t>(n)))
      fail(fmt::format("divisions are powers of two, got {}", n));
    return n;
  }

  void divisions() {
    auto& slots = out_.roundup_divisions;
    if (!peek("[")) {
      slots.fill(division(next(), false));
    } else {
      next();
      bool first = true;
      size_t last = 0;
      while (!peek("]")) {
        const std::string boundary = next();
        expect(":");
        const int64_t value = division(next(), true);
        if (boundary == ">") {
          std::fill(slots.begin() + static_cast<std::ptrdiff_t>(std::min(last + 1, slots.size())),
                    slots.end(), value);
        } else {
          const auto mb = static_cast<uint64_t>(whole(boundary));
          if (!std::has_single_bit(mb))
            fail(fmt::format("intervals begin at powers of two, got {}", boundary));
          const size_t slot =
              std::min(static_cast<size_t>(std::bit_width(mb) - 1), slots.size() - 1);
          if (first)
            std::fill(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(slot), value);
          first = false;
          slots[slot] = value;
          last = slot;
        }
        if (!peek("]")) expect(",");
      }
      next();
    }
    out_.roundup = std::any_of(slots.begin(), slots.end(), [](int64_t d) { return d > 1; });
  }

  std::string_view text_;
  std::string option_;  // that is being read
  std::vector<std::string> tokens_;
  size_t at_ = 0;
  AllocatorSettings out_;
};

}  // namespace

Bytes AllocatorSettings::round_divided(Bytes n) const {
  if (n < kBlock) return kBlock;
  const int log2 = std::bit_width(static_cast<uint64_t>(n)) - 1;
  const int64_t divisions = roundup_divisions[static_cast<size_t>(std::clamp(log2 - 20, 0, 15))];
  if (divisions <= 1 || n <= kBlock * divisions) return round_block(n);
  const auto bits = static_cast<uint64_t>(n);
  if (std::has_single_bit(bits)) return n;
  const Bytes floor = static_cast<Bytes>(std::bit_floor(bits));
  const Bytes step = floor / divisions;  // at least 512, as n > 512 divisions
  return (n + step - 1) / step * step;
}

AllocatorSettings parse_allocator_settings(std::string_view text,
                                           const AllocatorSettings& running) {
  return Parser(text, running).parse();
}

}  // namespace shardsim
