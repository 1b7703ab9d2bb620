// A text file that may be compressed with gzip, as profilers write their traces: decided by its first
// two bytes (1f 8b), not by its name. Several members in one file follow each other (RFC 1952).
#pragma once

#include <cstdint>
#include <string>

namespace shardsim {

// Error where the file is not there, cut off or damaged, longer than `largest` bytes once unpacked, or
// unpacks to so many times its size that it was made to.
// With `head` it ends after so many bytes and what is behind them is not looked at.
std::string read_maybe_gzip(const std::string& path, int64_t largest, int64_t head = 0);

}  // namespace shardsim
