// Reads a recording of real PyTorch (the form is described in spec/conform.md and the recordings'
// README): what to simulate, and what was seen.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
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

// Throw Error where the file is missing, is not JSON or is not a recording. Lists and objects inside
// one another more than 100 deep are refused: recordings have 6.
nlohmann::json read_json(const std::string& path);
nlohmann::json parse_json(const std::string& text, const std::string& path);
Recording read_recording(const nlohmann::json& file, const std::string& path);
Recording read_recording(const std::string& path);

// What other forms of recordings hold too. A whole number from low to high; throws Error.
int64_t recorded_whole(const nlohmann::json& value, int64_t low, int64_t high);
// A number that an environment variable spells, from low to high; none: it does not.
std::optional<double> environment_number(const nlohmann::json& value, double low, double high);
// FAKE_MEM_GIB, or 80 GiB; throws Error.
Bytes environment_device(const nlohmann::json& environment);
// The value for a message, cut where it is long.
std::string brief(const nlohmann::json& value);

}  // namespace shardsim
