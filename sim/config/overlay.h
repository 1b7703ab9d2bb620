// A document with some of its values replaced, as a study's points are: each setting puts a value of
// another document at a path; maps on the way are made where there are none.
// A setting without a document takes the key away.
// Worked example: base {training: {micro_batch: 2}}, setting training.fsdp2.reshard_after_forward to
// true: {training: {micro_batch: 2, fsdp2: {reshard_after_forward: true}}}.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/config/document.h"

namespace shardsim {

struct Setting {
  std::vector<std::string> path;
  const Document* from = nullptr;  // none: the key goes
  uint32_t node = 0;               // of `from`
};

// The names of "training.micro_batch", one by one; of "a..b" one is empty.
std::vector<std::string> key_path(std::string_view path);

// Places stay those of the files that the values stand in. Throws Error, at the setting's value, where
// the path leads through a value that is no map; of two settings of one path the later one holds.
Document overlaid(const Document& base, std::span<const Setting> settings);

// One value of a document as a document of its own.
Document part_of(const Document& document, uint32_t node);

// The same text for documents that say the same: keys in alphabetical order, no places. Keys of the
// outermost map in `without` are left out.
std::string canonical_text(const Document& document,
                           std::span<const std::string_view> without = {});
std::string canonical_text(const Document& document, uint32_t node);

}  // namespace shardsim
