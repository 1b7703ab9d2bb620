// Reads a recording of real PyTorch (the form is described in spec/conform.md and the recordings'
// README): what to simulate, and what was seen.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "sim/study/run_record.h"

namespace shardsim {

struct Recording {
  std::string file;
  std::string torch;       // "2.15.0+cu132"
  nlohmann::json program;  // the `case`
  nlohmann::json environment;
  RunRecord seen;
};

// Throw Error where the file is missing, is not JSON or is not a recording.
nlohmann::json read_json(const std::string& path);
Recording read_recording(const nlohmann::json& file, const std::string& path);
Recording read_recording(const std::string& path);

}  // namespace shardsim
