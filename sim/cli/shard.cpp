#include "sim/cli/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "sim/base/error.h"

namespace shardsim {

namespace {

constexpr int64_t kMostShards = 1'000'000;

int64_t number_of(const Variables& variables, const char* name, int64_t otherwise) {
  const std::optional<std::string> text = variables(name);
  if (!text) return otherwise;
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (code != std::errc{} || end != text->data() + text->size() || value < 0)
    throw Error(fmt::format("{}: expected a whole number, got '{}'", name, *text), {},
                "--shard i/n says the part without the environment");
  return value;
}

Shard of_environment(const Variables& variables) {
  if (variables("SLURM_ARRAY_TASK_ID")) {
    if (!variables("SLURM_ARRAY_TASK_COUNT"))
      throw Error("SLURM_ARRAY_TASK_ID is set and SLURM_ARRAY_TASK_COUNT is not", {},
                  "Slurm sets both; --shard i/n says the part without the environment");
    const int64_t id = number_of(variables, "SLURM_ARRAY_TASK_ID", 0);
    const int64_t first = number_of(variables, "SLURM_ARRAY_TASK_MIN", 0);
    const int64_t step = std::max<int64_t>(1, number_of(variables, "SLURM_ARRAY_TASK_STEP", 1));
    return {(id - first) / step + 1, number_of(variables, "SLURM_ARRAY_TASK_COUNT", 0)};
  }
  // Parts do not meet: where rank 0 runs is nobody's business.
  const LaunchPlace place = launch_place([&](const std::string& name) {
    return name == "MASTER_ADDR" ? std::optional<std::string>("none") : variables(name);
  });
  if (place.launcher.empty())
    throw Error("--shard auto: the environment names no Slurm array, torchrun, mpirun or srun", {},
                "--shard i/n says the part");
  return {place.rank + 1, place.world};
}

}  // namespace

Shard read_shard(const std::string& text, const Variables& variables) {
  if (text.empty()) return {};
  Shard shard;
  int used = 0;
  if (text == "auto")
    shard = of_environment(variables);
  else if (std::sscanf(text.c_str(), "%ld/%ld%n", &shard.number, &shard.of, &used) != 2 ||
           static_cast<size_t>(used) != text.size())
    shard = {0, 0};
  if (shard.number < 1 || shard.of < shard.number || shard.of > kMostShards)
    throw Error(fmt::format("--shard: expected i/n with i from 1 to n, or auto, got '{}'", text),
                {}, "--shard 3/8; with sbatch --array or mpirun: --shard auto");
  return shard;
}

}  // namespace shardsim
