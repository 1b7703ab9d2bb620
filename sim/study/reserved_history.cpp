#include "sim/study/reserved_history.h"

namespace shardsim {

namespace {

class Reserved final : public MemoryObserver {
 public:
  void allocated(const CachingAllocator& a, uint32_t /*slot*/) override {
    history.push_back(a.reserved());
  }
  void freeing(const CachingAllocator& a, uint32_t /*slot*/) override {
    history.push_back(a.reserved());
  }

  std::vector<Bytes> history;
};

}  // namespace

std::vector<Bytes> reserved_history(const Scenario& scenario, const Simulation& simulation) {
  Reserved reserved;
  if (scenario.options.memory != MemoryLevel::blocks) return {};
  const std::unique_ptr<Machine> machine = make_machine(scenario);
  machine->observe(&reserved, nullptr);
  Trace trace;
  machine->play(simulation.schedule, price(scenario, simulation.schedule), trace);
  return std::move(reserved.history);
}

}  // namespace shardsim
