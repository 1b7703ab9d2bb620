// How a recording's case is read: each key by a reader of its own, and a key or value without one
// ends the reading with a Skip, whose reason is that key and value.
// Worked example: read("optimizer.", {"name": "lion"}, {{"name", reader}}) throws
// Skip{"optimizer.name = \"lion\""} from the reader.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "sim/study/recorded_program.h"

namespace shardsim {

// As sim/config bounds a scenario's keys. Blocks: each is compared with its recording, call by call.
constexpr int64_t kMostSteps = 64;
constexpr int64_t kMostMicroBatch = 1 << 20;
constexpr int64_t kMostSeqLen = 1 << 24;
constexpr int64_t kMostGradAccum = 1 << 16;
constexpr int64_t kMostRanks = 1 << 17;
constexpr int64_t kMostBlocks = 10'000;
constexpr int64_t kMostForwards = 64;
constexpr size_t kMostParameters = 100'000;
constexpr int64_t kMostHidden = 1 << 20;
constexpr int64_t kMostFfn = 1 << 22;
constexpr int64_t kMostHeads = 1 << 16;
constexpr int64_t kMostFeatures = 1 << 24;  // of a linear, a side of a bare parameter, a vocabulary

// Thrown with the reason; caught in recorded_program.
struct Skip {
  std::string reason;
};

[[noreturn]] void skip(const std::string& key, const nlohmann::json& value);

// False, null, zero, empty: the runner's own notion of "not set".
bool unset(const nlohmann::json& v);

using Reader = std::function<void(const nlohmann::json&)>;
using Readers = std::map<std::string, Reader>;

// Readers of a plain value: a whole number, a truth, one of some words, and what changes nothing.
Reader number(const std::string& key, int64_t& to, int64_t low, int64_t high);
Reader truth(const std::string& key, bool& to);
Reader dtype_or_null(const std::string& key, std::optional<DType>& to);
template <class T>
Reader choice(const std::string& key, T& to, std::map<std::string, T> values) {
  return [key, &to, values = std::move(values)](const nlohmann::json& v) {
    const auto it = v.is_string() ? values.find(v.get<std::string>()) : values.end();
    if (it == values.end()) skip(key, v);
    to = it->second;
  };
}
Reader nothing();

// Every key of the object; one that no reader knows must be unset.
void read(const std::string& path, const nlohmann::json& object, const Readers& readers);

DType dtype(const std::string& key, const nlohmann::json& v);
int64_t whole(const std::string& key, const nlohmann::json& v, int64_t low, int64_t high);
const nlohmann::json& list(const std::string& key, const nlohmann::json& v, size_t low,
                           size_t high);
std::string word(const std::string& key, const nlohmann::json& object,
                 const std::string& otherwise);
bool flag(const std::string& key, const nlohmann::json& v);
Reshard reshard(const std::string& key, const nlohmann::json& v);
LinearShape linear(const std::string& key, const nlohmann::json& v);

// The program of run_fsdp1_ddp_zero.py.
void read_fsdp1_ddp_zero_case(const nlohmann::json& c, RecordedProgram& r);
// The program of run_memory.py, whose cases name no runner.
void read_memory_case(const nlohmann::json& c, RecordedProgram& r);
// The program of run_compiled.py.
void read_compiled_case(const nlohmann::json& c, RecordedProgram& r);

}  // namespace shardsim
