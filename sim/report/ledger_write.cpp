#include <nlohmann/json.hpp>

#include "sim/report/ledger.h"
#include "sim/report/text.h"

namespace shardsim {

namespace {

using Json = nlohmann::ordered_json;

std::string difference(Bytes n) { return (n < 0 ? "-" : "+") + decimal_bytes(n < 0 ? -n : n); }

Json entry_json(const LedgerEntry& e) {
  Json j{{"formula", e.formula},
         {"formula_bytes", e.expected},
         {"simulated_bytes", e.simulated},
         {"difference_bytes", e.simulated - e.expected},
         {"reasons", Json::array()}};
  for (const LedgerReason& r : e.reasons)
    j["reasons"].push_back({{"what", r.what}, {"bytes", r.bytes}});
  return j;
}

const std::vector<const LedgerEntry*> entries(const Ledger& l) {
  return {&l.resident, &l.peak, &l.communication};
}

}  // namespace

std::string_view resident_formula(Scheme scheme) {
  switch (scheme) {
    case Scheme::ddp:
    case Scheme::no_shard: return "P (2b + 8)";
    case Scheme::zero1: return "2 P b + 8 P/N";
    case Scheme::zero2: return "P b + P (b + 8)/N";
    default: return "P (2b + 8)/N";
  }
}

std::string_view peak_formula(Scheme scheme) {
  return shards_params(scheme) ? "resident + P b" : "resident";
}

std::string_view communication_formula(Scheme scheme) {
  return passes(scheme) == 3 ? "3 P b (N-1)/N" : "2 P b (N-1)/N";
}

std::string deepspeed_table(const DeepSpeedSetup& setup) {
  Lines out;
  out.add("DeepSpeed's estimators would say: {} node{} of {} GPU{}{}", setup.nodes,
          setup.nodes == 1 ? "" : "s", setup.gpus_per_node, setup.gpus_per_node == 1 ? "" : "s",
          setup.largest_layer > 0
              ? fmt::format(", {} parameters in the largest layer", grouped(setup.largest_layer))
              : "");
  std::vector<std::vector<std::string>> rows{
      {"stage", "offloaded", "zero_init", "a GPU", "a host"}};
  for (const DeepSpeedEstimate& e : deepspeed_estimates(setup))
    rows.push_back({std::string(e.stage), std::string(e.offload),
                    e.stage == "zero2" ? ""
                    : e.zero_init      ? "yes"
                                       : "no",
                    decimal_bytes(e.gpu), decimal_bytes(e.cpu)});
  out.text(aligned(rows, "lllrr"));
  return out.take();
}

std::string ledger_entries(const Ledger& l) {
  Lines out;
  const StateFormula& f = l.formula;
  out.add("ledger   on paper {}, P {}, b {} ({}), N {}{}", name_of(f.scheme), grouped(f.params),
          f.bytes, l.type, f.ranks, l.replicas > 1 ? fmt::format(", {} replicas", l.replicas) : "");
  std::vector<std::vector<std::string>> rows{
      {"a rank's", "formula", "on paper", "simulated", "difference"}};
  for (const LedgerEntry* e : entries(l))
    rows.push_back({e->name, e->formula, decimal_bytes(e->expected), decimal_bytes(e->simulated),
                    difference(e->simulated - e->expected)});
  out.text(aligned(rows, "llrrr"));
  for (const LedgerEntry* e : entries(l)) {
    if (e->reasons.empty()) continue;
    out.add("");
    if (e == &l.peak && !l.peak_phase.empty())
      out.add("{}: why it differs (before the mark {})", e->name, l.peak_phase);
    else
      out.add("{}: why it differs", e->name);
    std::vector<std::vector<std::string>> reasons;
    for (const LedgerReason& r : e->reasons) reasons.push_back({difference(r.bytes), r.what});
    out.text(aligned(reasons, "rl"));
  }
  return out.take();
}

std::string ledger_table(const Ledger& l) {
  return fmt::format("{}: {}\n\n{}\n{}", l.name, l.strategy, ledger_entries(l),
                     deepspeed_table(l.deepspeed));
}

std::string deepspeed_json(const DeepSpeedSetup& setup) {
  Json j{{"params", setup.params},
         {"largest_layer", setup.largest_layer},
         {"gpus_per_node", setup.gpus_per_node},
         {"nodes", setup.nodes},
         {"estimates", Json::array()}};
  for (const DeepSpeedEstimate& e : deepspeed_estimates(setup))
    j["estimates"].push_back({{"stage", e.stage},
                              {"offload", e.offload},
                              {"zero_init", e.stage == "zero2" ? Json(nullptr) : Json(e.zero_init)},
                              {"gpu_bytes", e.gpu},
                              {"cpu_bytes", e.cpu}});
  return j.dump();
}

std::string ledger_json(const Ledger& l) {
  const StateFormula& f = l.formula;
  Json j{{"schema_version", 1},
         {"name", l.name},
         {"strategy", l.strategy},
         {"scheme", name_of(f.scheme)},
         {"params", f.params},
         {"bytes_per_param", f.bytes},
         {"ranks", f.ranks},
         {"replicas", l.replicas},
         {"resident", entry_json(l.resident)},
         {"peak", entry_json(l.peak)},
         {"communication", entry_json(l.communication)},
         {"peak_phase", l.peak_phase},
         {"deepspeed", Json::parse(deepspeed_json(l.deepspeed))}};
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ledger_csv(const Ledger& l) {
  std::string out = "entry,what,bytes\n";
  for (const LedgerEntry* e : entries(l)) {
    const auto row = [&](const std::string& what, Bytes bytes) {
      out += fmt::format("{},{},{}\n", csv_field(e->name), csv_field(what), bytes);
    };
    row("by formula", e->expected);
    for (const LedgerReason& r : e->reasons) row(r.what, r.bytes);
    row("simulated", e->simulated);
  }
  return out;
}

}  // namespace shardsim
