#include "backends/replay/launch.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>

#include "sim/base/error.h"

namespace shardsim {

namespace {

struct Launcher {
  const char* name;
  std::array<const char*, 2> rank, world, local_rank, local_world;
};

constexpr std::array<Launcher, 4> kLaunchers{{
    {"torchrun", {"RANK"}, {"WORLD_SIZE"}, {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}},
    {"OpenMPI",
     {"OMPI_COMM_WORLD_RANK"},
     {"OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_RANK"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE"}},
    {"PMI",
     {"PMI_RANK"},
     {"PMI_SIZE"},
     {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
     {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}},
    {"Slurm",
     {"SLURM_PROCID"},
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     {"SLURM_LOCALID"},
     {nullptr}},
}};

constexpr int kMostRanks = 1 << 20;

struct Number {
  const char* name = nullptr;
  int value = 0;
};

int number(const char* name, const std::string& text, int least, int most) {
  int value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || value < least || value > most)
    throw Error(
        fmt::format("{}: expected a whole number from {} to {}, got '{}'", name, least, most, text),
        {}, "the variable comes from the launcher (torchrun, mpirun, srun); unset it by hand");
  return value;
}

std::optional<Number> first_of(const Variables& variables, const std::array<const char*, 2>& names,
                               int least) {
  for (const char* name : names)
    if (name != nullptr)
      if (const std::optional<std::string> text = variables(name))
        return Number{name, number(name, *text, least, kMostRanks)};
  return std::nullopt;
}

void must_be_below(const Number& a, const Number& b) {
  if (a.value < b.value) return;
  throw Error(
      fmt::format("{} is {}, which {} of {} does not allow", a.name, a.value, b.name, b.value), {},
      "variables of two launches are mixed: start from a clean environment");
}

std::string address(const Variables& variables, const LaunchPlace& place, bool one_node) {
  if (const auto given = variables("MASTER_ADDR"); given && !given->empty()) return *given;
  if (one_node) return place.address;
  if (place.launcher == "Slurm")
    for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"})
      if (const auto list = variables(name); list && !list->empty()) return first_node(*list);
  throw Error(
      fmt::format("MASTER_ADDR is not set, and {} does not say where rank 0 runs", place.launcher),
      {}, "set it to the host name of rank 0's node, for all ranks");
}

}  // namespace

std::optional<std::string> environment_variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

std::string first_node(const std::string& list) {
  const size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const size_t end = list.find_first_of("-,]", bracket);
  const size_t close = list.find(']', bracket);
  if (end == std::string::npos || close == std::string::npos) return list.substr(0, bracket);
  const size_t next = list.find(',', close);
  const size_t suffix_end = next == std::string::npos ? list.size() : next;
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) +
         list.substr(close + 1, suffix_end - close - 1);
}

LaunchPlace launch_place(const Variables& variables) {
  LaunchPlace place;
  bool one_node = true;
  for (const Launcher& l : kLaunchers) {
    const std::optional<Number> rank = first_of(variables, l.rank, 0);
    // Inside a batch script Slurm has set the number of tasks, and this is none of them.
    if (!rank) {
      const bool slurm = std::string_view(l.name) == "Slurm";
      const std::optional<Number> world = slurm ? std::nullopt : first_of(variables, l.world, 1);
      if (!world) continue;
      throw Error(fmt::format("{} is set and {} is not", world->name, l.rank[0]), {},
                  fmt::format("{} sets both: start from a clean environment", l.name));
    }
    const std::optional<Number> world = first_of(variables, l.world, 1);
    if (!world)
      throw Error(fmt::format("{} is set and {} is not", rank->name, l.world[0]), {},
                  fmt::format("{} sets both: start from a clean environment", l.name));
    must_be_below(*rank, *world);
    place.launcher = l.name;
    place.rank = rank->value;
    place.world = world->value;
    const std::optional<Number> local = first_of(variables, l.local_rank, 0);
    const std::optional<Number> local_world = first_of(variables, l.local_world, 1);
    if (local) {
      must_be_below(*local, *world);
      place.local_rank = local->value;
    }
    if (local && local_world) must_be_below(*local, *local_world);
    one_node = place.world == 1 || (local_world && local_world->value == place.world);
    break;
  }
  if (const auto port = variables("MASTER_PORT"))
    place.port = number("MASTER_PORT", *port, 1, 65534);
  place.address = address(variables, place, one_node);
  return place;
}

}  // namespace shardsim
