// The recordings in tests/recordings (what each shows: the README there), and small ones by hand.
#pragma once

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/study/recording.h"

namespace shardsim::test {

using nlohmann::json;

inline std::string recording_path(const std::string& name) {
  return SHARDSIM_SOURCE_DIR "/tests/recordings/" + name + ".json";
}

inline json recording(const std::string& name) { return read_json(recording_path(name)); }

inline std::vector<std::string> recordings_in(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& entry :
       std::filesystem::directory_iterator(SHARDSIM_SOURCE_DIR "/tests/recordings/" + folder))
    if (entry.path().extension() == ".json")
      out.push_back(folder + "/" + entry.path().stem().string());
  std::sort(out.begin(), out.end());
  return out;
}

// One section of calls, on communicator 1 of 8 ranks.
inline RunRecord record_of(const json& calls, const json& before = json::array()) {
  const json file = {{"torch", "2.15.0"},
                     {"case", json::object()},
                     {"communicators", {{"1", 8}, {"2", 2}}},
                     {"sections",
                      {{{"until", "after_init"}, {"calls", before}},
                       {{"until", "step0.0.after_forward"}, {"calls", calls}}}}};
  return read_recording(file, "by hand").seen;
}

}  // namespace shardsim::test
