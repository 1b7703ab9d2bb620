// Whole numbers as text that a page can hold: each as bytes of 7 bits, lowest first, the top bit set
// where another follows (LEB128); signed ones folded first (0, -1, 1, -2, ... are 0, 1, 2, 3, ...); all
// of them compressed (zlib) and written in base64.
// Worked numbers: 300 is the bytes 0xac 0x02; -2 is 3.
#pragma once

#include <cstdint>
#include <string>

namespace shardsim {

class Packer {
 public:
  void add(uint64_t n);
  void add_signed(int64_t n);
  void append(const Packer& other) { bytes_ += other.bytes_; }
  const std::string& bytes() const { return bytes_; }
  std::string text() const;

 private:
  std::string bytes_;
};

}  // namespace shardsim
