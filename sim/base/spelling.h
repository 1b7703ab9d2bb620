// The hint under an unknown word: "did you mean 'micro_batch'?", or all the words there are.
// Words are near if less than half, and at most a third (at least two), of the letters were changed,
// dropped, added or swapped with a neighbour: edit_distance("micro_btach", "micro_batch") = 1.
// A word that several known ones begin with or contain gets them all: "h100" is no near miss of one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shardsim {

int edit_distance(std::string_view a, std::string_view b);

// `noun` names what the words are: "known keys: a, b, c".
std::string spelling_hint(std::string_view word, const std::vector<std::string_view>& known,
                          std::string_view noun);

}  // namespace shardsim
