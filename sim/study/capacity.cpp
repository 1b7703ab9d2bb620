#include "sim/study/capacity.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "sim/base/error.h"
#include "sim/base/quantity.h"
#include "sim/base/spelling.h"
#include "sim/cluster/catalogue.h"
#include "sim/config/scenario.h"
#include "sim/study/parallel.h"

namespace shardsim {

namespace {

// The simulations of one question of one strategy, each size once.
class Search {
 public:
  Search(const StrategyVariant& variant, const Scenario& scenario, const CapacityOptions& options)
      : variant_(variant), options_(options) {
    own_ = {scenario.cluster.nodes, scenario.cluster.gpus_per_node};
    micro_batch_ = scenario.training.micro_batch;
    seq_len_ = scenario.training.seq_len;
    positions_ = scenario.model.max_positions;
    node_ = own_.gpus_per_node;
    // Part of a node is no more than a number of GPUs, and there may be more of them.
    if (const std::optional<Cluster> system = find_system(scenario.cluster.name);
        system && own_.nodes == 1 && !variant.replicates())
      node_ = std::max<int64_t>(node_, system->gpus_per_node);
  }

  CapacityAnswer smallest_cluster() {
    for (int64_t g = 1; !variant_.replicates() && g < node_; g *= 2) clusters_.push_back({1, g});
    const int64_t least = variant_.replicates() ? 2 : 1;
    const auto inside = static_cast<int64_t>(clusters_.size());
    const int64_t n = inside + std::max<int64_t>(0, options_.max_nodes - least + 1);
    const auto at = [&](int64_t i) -> CapacityProbe& {
      return probe(
          i,
          i < inside ? clusters_[static_cast<size_t>(i)] : ClusterSize{i - inside + least, node_},
          micro_batch_, seq_len_);
    };
    const int64_t first = first_that(n, [&](int64_t i) { return at(i).fits(); });
    CapacityAnswer out;
    if (first < n) out.answer = at(first);
    if (first > 0) out.next = at(first - 1);
    if (first == n && out.next && out.next->row.error.empty())
      out.limit = fmt::format("--max-nodes {}", options_.max_nodes);
    out.played = static_cast<int64_t>(probes_.size());
    return out;
  }

  CapacityAnswer largest_micro_batch() {
    return largest(options_.max_micro_batch,
                   fmt::format("--max-micro-batch {}", options_.max_micro_batch),
                   [&](int64_t i) -> CapacityProbe& { return probe(i, own_, i + 1, seq_len_); });
  }

  CapacityAnswer longest_sequence() {
    CapacityAnswer out;
    if (seq_len_ == 0) {
      out.limit = "the model has rows, no sequences";
      return out;
    }
    int64_t most = options_.max_seq_len;
    std::string limit = fmt::format("--max-seq {}", most);
    if (positions_ > 0 && positions_ < most) {
      most = positions_;
      limit = fmt::format("the model's {} positions", positions_);
    }
    return largest(most / options_.seq_step, limit, [&](int64_t i) -> CapacityProbe& {
      return probe(i, own_, micro_batch_, (i + 1) * options_.seq_step);
    });
  }

 private:
  template <class At>
  CapacityAnswer largest(int64_t n, const std::string& limit, At&& at) {
    const int64_t over = first_that(n, [&](int64_t i) { return !at(i).fits(); });
    CapacityAnswer out;
    if (over > 0) out.answer = at(over - 1);
    if (over < n) out.next = at(over);
    if (over == n) out.limit = limit;
    out.played = static_cast<int64_t>(probes_.size());
    return out;
  }

  CapacityProbe& probe(int64_t index, const ClusterSize& cluster, int64_t micro_batch,
                       int64_t seq_len) {
    const auto [at, first] = probes_.try_emplace(index);
    CapacityProbe& p = at->second;
    if (!first) return p;
    p.cluster = cluster;
    p.micro_batch = micro_batch;
    p.seq_len = seq_len;
    p.row = row_or_error(
        [&] {
          Scenario s = variant_.at(cluster, micro_batch, seq_len);
          s.cluster.gpu.memory_bytes -= options_.leave;
          return s;
        },
        simulation_, [](const Error& e) { return std::string(e.what()); });
    return p;
  }

  const StrategyVariant& variant_;
  const CapacityOptions& options_;
  ClusterSize own_;
  std::vector<ClusterSize> clusters_;
  int64_t node_ = 1;  // GPUs of a whole one
  int64_t micro_batch_ = 0, seq_len_ = 0, positions_ = 0;
  std::map<int64_t, CapacityProbe> probes_;
  Simulation simulation_;
};

void check(const CapacityOptions& options) {
  const std::vector<std::string>& known = strategy_variants();
  for (const std::string& name : options.strategies)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Error(fmt::format("--strategies: there is no '{}'", name), {},
                  spelling_hint(name, {known.begin(), known.end()}, "strategies"));
  if (options.max_seq_len < options.seq_step)
    throw Error(fmt::format("--max-seq: {} is less than one step of {}", options.max_seq_len,
                            options.seq_step),
                {}, "--seq-step makes steps smaller");
}

}  // namespace

CapacityReport capacity(const std::string& file, const CapacityOptions& options) {
  check(options);
  CapacityReport report;
  const auto text = std::make_shared<const Document>(parse_yaml(read_text_file(file), file));
  report.scenario = read_scenario(text, file);
  report.seq_step = options.seq_step;
  report.leave = options.leave;
  const Gpu& gpu = report.scenario.cluster.gpu;
  if (const Bytes room = gpu.memory_bytes - gpu.context_bytes; options.leave >= room)
    throw Error(fmt::format("--leave: {} is all of the {} that {} has for tensors, or more",
                            format_bytes(options.leave), format_bytes(room), gpu.name));
  const Training& t = report.scenario.training;
  std::vector<StrategyVariant> variants;
  for (const std::string& name : options.strategies)
    variants.emplace_back(name, text, file, report.scenario);
  report.strategies.resize(variants.size());
  const ClusterSize own{report.scenario.cluster.nodes, report.scenario.cluster.gpus_per_node};
  // What cannot be played at the scenario's own size cannot be played at others.
  parallel_for(variants.size(), options.threads, [&](size_t i) {
    StrategyCapacity& s = report.strategies[i];
    s.name = variants[i].name();
    s.impossible = variants[i].impossible();
    s.changes = variants[i].changes();
    if (!s.impossible.empty()) return;
    try {
      simulate(variants[i].at(own, t.micro_batch, t.seq_len));
    } catch (const Error& e) {
      s.impossible = e.what();
    }
  });
  constexpr size_t kQuestions = 3;
  parallel_for(kQuestions * variants.size(), options.threads, [&](size_t task) {
    StrategyCapacity& s = report.strategies[task / kQuestions];
    if (!s.impossible.empty()) return;
    Search search(variants[task / kQuestions], report.scenario, options);
    switch (task % kQuestions) {
      case 0: s.cluster = search.smallest_cluster(); break;
      case 1: s.micro_batch = search.largest_micro_batch(); break;
      default: s.seq_len = search.longest_sequence(); break;
    }
  });
  return report;
}

}  // namespace shardsim
