// What a scenario's file says, key by key: for telling two files apart. Values stand as written, a
// list or an anchor's map in full; what is left to a default is not there.
// "training: {fsdp2: {reshard_after_forward: false}}" gives
// {"training.fsdp2.reshard_after_forward", "false"}.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace shardsim {

// In the order of the file; `name` and the version are left out, which say nothing about a run.
std::vector<std::pair<std::string, std::string>> settings_in(const std::string& path);

}  // namespace shardsim
