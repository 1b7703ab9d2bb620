// conform against recordings of real PyTorch: all of those in tests/recordings/fsdp2, fsdp1, ddp, whole and their 2.7 exactly; what a
// changed recording makes fail; and that nothing but the program is read.
#include "sim/study/conform.h"

#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/study/recorded_program.h"
#include "tests/unit/recordings.h"

namespace shardsim {
namespace {

using test::json;
using test::recording;
using test::recordings_in;

Checks checks_of(const json& file) {
  const Conformance c = conform(read_recording(file, "test"), false);
  EXPECT_EQ(c.skipped, "");
  return c.checks;
}

// Times in a recording are rounded to a nanosecond: two of them in 200 us are off by 5e-6.
constexpr double kRounding = 1e-5;

// "order waits": the checks that fail, and the errors that are not 0.
std::string failing(const Checks& c) {
  std::string out;
  const auto say = [&](const char* name, bool bad) {
    if (bad) out += (out.empty() ? "" : " ") + std::string(name);
  };
  say("shapes", c.shapes == false);
  say("order", c.order == false);
  say("streams", c.streams == false);
  say("waits", c.waits == false);
  say("host_waits", c.host_waits == false);
  say("oom", c.oom == false);
  say("timeline", c.timeline_error.value_or(0) > kRounding);
  say("allocated", c.allocated_error.value_or(0) > 0);
  say("peak", c.peak_error.value_or(0) > 0);
  say("active", c.active_error.value_or(0) > 0);
  say("reserved", c.reserved_error.value_or(0) > 0);
  return out;
}

std::string failing(const json& file) { return failing(checks_of(file)); }

json& calls_of(json& file, const std::string& until) {
  for (json& s : file["sections"])
    if (s["until"] == until) return s["calls"];
  throw Error("no section " + until);
}

// The n-th call of that name, on that stream where one is given.
size_t find(const json& calls, const std::string& name, size_t n = 0,
            const std::string& stream = "") {
  for (size_t i = 0; i < calls.size(); ++i)
    if (calls[i][0] == name && (stream.empty() || calls[i][1] == stream) && n-- == 0) return i;
  throw Error("no such call");
}

TEST(StudyConform, RecordingsAreExact) {
  auto names = recordings_in("fsdp2");
  EXPECT_GE(names.size(), 40u);
  const auto older = recordings_in("fsdp2-2.7");  // of PyTorch 2.7.1
  EXPECT_GE(older.size(), 13u);
  names.insert(names.end(), older.begin(), older.end());
  const auto fsdp1 = recordings_in("fsdp1");
  EXPECT_GE(fsdp1.size(), 50u);
  names.insert(names.end(), fsdp1.begin(), fsdp1.end());
  const auto older_fsdp1 = recordings_in("fsdp1-2.7");
  EXPECT_GE(older_fsdp1.size(), 4u);
  names.insert(names.end(), older_fsdp1.begin(), older_fsdp1.end());
  for (const auto& [folder, least] : {std::pair{"ddp", 23u}, {"ddp-2.7", 3u}, {"whole", 4u}}) {
    const auto whole = recordings_in(folder);
    EXPECT_GE(whole.size(), least);
    names.insert(names.end(), whole.begin(), whole.end());
  }
  const auto compiled = recordings_in("compiled");
  EXPECT_GE(compiled.size(), 3u);
  names.insert(names.end(), compiled.begin(), compiled.end());
  const auto zero = recordings_in("zero");
  EXPECT_GE(zero.size(), 18u);
  names.insert(names.end(), zero.begin(), zero.end());
  for (const std::string& name : names) {
    const Checks c = checks_of(recording(name));
    EXPECT_EQ(failing(c), "") << name << (c.differences.empty() ? "" : "\n" + c.differences[0]);
    // Nothing is null: each of these holds all.
    EXPECT_TRUE(c.shapes && c.order && c.streams && c.waits && c.host_waits && c.oom) << name;
    EXPECT_TRUE(c.timeline_error) << name;
    // Memory of DDP's reducer on the legacy backend is not compared (spec/conform).
    const bool compares_memory = !name.starts_with("ddp/random_61");
    for (const auto& error : {c.allocated_error, c.peak_error, c.active_error, c.reserved_error})
      EXPECT_EQ(error.has_value(), compares_memory) << name;
    EXPECT_FALSE(c.allocator) << name;
  }
}

// Of the memory recorder's programs the calls are kept for small ones only; runs out of memory end
// where PyTorch's ended, with the same bytes left when the exception has unwound the stack.
TEST(StudyConform, TrainingMemoryIsExact) {
  const auto names = recordings_in("memory");
  EXPECT_GE(names.size(), 15u);
  int out_of_memory = 0;
  for (const std::string& name : names) {
    const json file = recording(name);
    const Checks c = checks_of(file);
    EXPECT_EQ(failing(c), "") << name << (c.differences.empty() ? "" : "\n" + c.differences[0]);
    EXPECT_TRUE(c.shapes && c.oom && c.allocated_error && c.peak_error && c.active_error &&
                c.reserved_error)
        << name;
    if (file["memory"].back()["phase"] == "oom") ++out_of_memory;
  }
  EXPECT_GE(out_of_memory, 4);
}

// The mark that a run out of memory passed last is part of the check, and so is the row `oom`.
TEST(StudyConform, OutOfMemoryElsewhere) {
  json file = recording("memory/llama1b_24gib_b8");
  json later = file;
  json mark = file["memory"][0];
  mark["phase"] = "step0.0.after_forward";
  later["memory"].insert(later["memory"].begin() + 1, mark);
  EXPECT_NE(failing(later).find("oom"), std::string::npos);
  json& row = file["memory"].back();
  row["allocated"] = row["allocated"].get<int64_t>() + 512;
  EXPECT_EQ(failing(file), "allocated");
}

// What the simulation makes of a file, as text.
std::string simulated(const json& file) {
  const Recording r = read_recording(file, file.value("name", "test"));
  const RecordedProgram p = recorded_program(r.program, r.environment, r.torch);
  EXPECT_EQ(p.skipped, "");
  const RunRecord run = simulate_recording(p.scenario);
  std::string out;
  for (const auto& [name, shape] : run.shapes) {
    out += name;
    for (int64_t d : shape) out += " " + std::to_string(d);
    out += "\n";
  }
  for (const Section& s : run.sections) {
    out += s.until + "\n";
    for (const Call& c : s.calls)
      out += std::to_string(static_cast<int>(c.kind)) + " " + std::to_string(c.stream) + " " +
             std::to_string(c.bytes) + " " + std::to_string(c.event) + " " +
             std::to_string(c.start.ps) + " " + std::to_string(c.end.ps) + "\n";
  }
  for (const MemoryMark& m : run.memory)
    out += m.phase + " " + std::to_string(m.allocated) + " " + std::to_string(m.allocated_peak) +
           " " + std::to_string(m.active_peak.value_or(-1)) + " " +
           std::to_string(m.reserved_peak.value_or(-1)) + "\n";
  return out;
}

// spec/conform.md: observed deleted (or wrong), the case renamed, memory, sections and allocator
// emptied: the simulated result is the same.
TEST(StudyConform, ReadsNothingButTheProgram) {
  for (const char* name : {"memory/loss_chunked", "fsdp2/basic_bf16", "fsdp2/ac_selective_op",
                           "fsdp2/random_1_057_fsdp2", "fsdp2/host_bound_20us_prefetch"}) {
    const json file = recording(name);
    json blind = file;
    blind["case"]["name"] = "something_else";
    blind["case"].erase("observed");
    for (const char* key : {"memory", "sections", "allocator"}) blind[key] = json::array();
    for (const char* key : {"local_shapes", "communicators", "streams"}) blind.erase(key);
    json misled = blind;
    misled["case"]["observed"] = {{"units", {"layers.7"}}, {"buckets", {1, 2, 3}}};
    misled["name"] = "full_shard_pre";
    EXPECT_GT(simulated(file).size(), 10'000u);
    EXPECT_EQ(simulated(file), simulated(blind)) << name;
    EXPECT_EQ(simulated(file), simulated(misled)) << name;
    // What a file does not hold is null, and null never fails.
    const Checks c = checks_of(blind);
    EXPECT_FALSE(c.order || c.streams || c.waits || c.host_waits || c.oom || c.timeline_error ||
                 c.allocated_error || c.peak_error || c.active_error || c.reserved_error)
        << name;
  }
}

// Without local_shapes there is nothing to compare either.
TEST(StudyConform, AbsentShapesAreNull) {
  json file = recording("fsdp2/basic_fp32");
  file.erase("local_shapes");
  EXPECT_FALSE(checks_of(file).shapes.has_value());
}

TEST(StudyConform, RemovedCollective) {
  json file = recording("fsdp2/basic_fp32");
  json& calls = calls_of(file, "step1.0.after_backward");
  calls.erase(find(calls, "all_gather", 3));
  const std::string f = failing(file);
  EXPECT_NE(f.find("order"), std::string::npos) << f;
  EXPECT_NE(f.find("waits"), std::string::npos) << f;
  for (const char* other : {"shapes", "host_waits", "oom", "allocated", "peak", "reserved"})
    EXPECT_EQ(f.find(other), std::string::npos) << f;
}

// One byte: the order is of bytes, the waits are of kinds.
TEST(StudyConform, ChangedBytes) {
  json file = recording("fsdp2/basic_fp32");
  json& calls = calls_of(file, "step1.0.after_forward");
  json& bytes = calls[find(calls, "all_gather", 1)][2];
  bytes = bytes.get<int64_t>() + 1;
  EXPECT_EQ(failing(file), "order");
}

// The size of a communicator belongs to the order too.
TEST(StudyConform, ChangedCommunicator) {
  json file = recording("fsdp2/basic_fp32");
  file["communicators"]["1"] = 4;
  EXPECT_EQ(failing(file), "order");
}

TEST(StudyConform, SwappedCollectives) {
  // The last all-gather of forward after the first of backward's: two of unequal size.
  json file = recording("fsdp2/wrap_embedding_head");
  json& calls = calls_of(file, "step1.0.after_forward");
  std::swap(calls[find(calls, "all_gather", 0)][2], calls[find(calls, "all_gather", 1)][2]);
  EXPECT_EQ(failing(file), "order");
}

// The compute stream's wait for an all-gather is what makes its copy-out correct.
TEST(StudyConform, RemovedWait) {
  json file = recording("fsdp2/basic_fp32");
  json& calls = calls_of(file, "step1.0.after_backward");
  const size_t gather = find(calls, "all_gather");
  size_t wait = gather;
  while (!(calls[wait][0] == "wait" && calls[wait][1] == "s0")) ++wait;
  calls.erase(wait);
  EXPECT_EQ(failing(file), "waits");
}

// What NCCL's backend does for itself, a stream that waits for its own event, is not compared.
TEST(StudyConform, RedundantCallsDoNotMatter) {
  json file = recording("fsdp2/basic_fp32");
  json& calls = calls_of(file, "step1.0.after_backward");
  const size_t gather = find(calls, "all_gather");
  ASSERT_EQ(calls[gather + 1][0], "record");
  ASSERT_EQ(calls[gather + 2], (json{"wait", calls[gather][1], calls[gather + 1][2]}));
  calls.erase(gather + 2);
  calls.insert(calls.begin(), json{"record", "s3", 900000});
  calls.insert(calls.begin() + 1, json{"wait", "s3", 900000});
  EXPECT_EQ(failing(file), "");
}

TEST(StudyConform, AddedWait) {
  json file = recording("fsdp2/basic_fp32");
  json& calls = calls_of(file, "step1.0.after_forward");
  // The all-gather stream waits for the compute stream's tail: no overlap any more.
  const size_t at = find(calls, "all_gather", 2);
  calls.insert(calls.begin() + static_cast<int64_t>(at), json{"wait", "s2", 900000});
  calls.insert(calls.begin() + static_cast<int64_t>(at), json{"record", "s0", 900000});
  EXPECT_EQ(failing(file), "waits");
}

// One reduce-scatter on another stream: no bijection, and so no clocks to compare.
TEST(StudyConform, MovedCollective) {
  json file = recording("fsdp2/basic_fp32");
  json& calls = calls_of(file, "step1.0.after_backward");
  json& call = calls[find(calls, "reduce_scatter", 2)];
  ASSERT_EQ(call[1], "s3");
  call[1] = "s2";
  EXPECT_EQ(failing(file), "streams waits");
}

// Numbers of streams and events mean nothing.
TEST(StudyConform, RenumberedStreamsAndEvents) {
  json file = recording("fsdp2/hsdp_4x2_fp32");
  const std::map<std::string, std::string> names{
      {"s0", "s3"}, {"s1", "s0"}, {"s2", "s4"}, {"s3", "s7"}, {"s4", "s1"}};
  for (json& section : file["sections"])
    for (json& call : section["calls"]) {
      if (call.size() > 1 && call[1].is_string()) call[1] = names.at(call[1].get<std::string>());
      const std::string kind = call[0].get<std::string>();
      if (kind == "record" || kind == "wait" || kind == "event_sync")
        call[2] = 1000 - call[2].get<int64_t>();
    }
  EXPECT_EQ(failing(file), "");
}

TEST(StudyConform, ChangedProduct) {
  json file = recording("fsdp2/basic_fp32");
  json& calls = calls_of(file, "step1.0.after_backward");
  calls[find(calls, "gemm", 4)][2][1] = 127;
  const std::string f = failing(file);
  EXPECT_NE(f.find("waits"), std::string::npos) << f;
  for (const char* other : {"shapes", "order", "host_waits", "timeline", "allocated"})
    EXPECT_EQ(f.find(other), std::string::npos) << f;
}

// At the end of the recording nothing follows that would have to wait.
TEST(StudyConform, AddedHostWait) {
  for (const char* kind : {"stream_sync", "device_sync"}) {
    json file = recording("fsdp2/basic_fp32");
    calls_of(file, "step1.after_zero_grad").push_back(json{kind, "s0"});
    EXPECT_EQ(failing(file), "host_waits") << kind;
    // In the middle, all that is issued later waits: the first all-gather of backward for forward.
    json early = recording("fsdp2/basic_fp32");
    json& calls = calls_of(early, "step1.0.after_backward");
    calls.insert(calls.begin(), json{kind, "s0"});
    EXPECT_EQ(failing(early), "waits host_waits") << kind;
  }
}

TEST(StudyConform, ChangedShapes) {
  json file = recording("fsdp2/basic_fp32");
  json less = file, more = file, other = file;
  less["local_shapes"].erase("layers.0.0.weight");
  EXPECT_EQ(failing(less), "shapes");
  more["local_shapes"]["layers.9.weight"] = {1, 2};
  EXPECT_EQ(failing(more), "shapes");
  other["local_shapes"]["layers.0.0.weight"][0] = 255;
  EXPECT_EQ(failing(other), "shapes");
  // Wrappers' prefixes are taken off.
  json wrapped = file;
  for (const auto& [name, shape] : file["local_shapes"].items()) {
    wrapped["local_shapes"].erase(name);
    wrapped["local_shapes"]["module._checkpoint_wrapped_module." + name] = shape;
  }
  EXPECT_EQ(failing(wrapped), "");
}

// The error of a mark is |simulated - recorded| / recorded, the largest over the marks.
TEST(StudyConform, MemoryErrors) {
  const json file = recording("fsdp2/basic_fp32");
  const struct {
    const char* key;
    std::optional<double> Checks::*error;
    const char* name;
  } columns[] = {{"allocated", &Checks::allocated_error, "allocated"},
                 {"allocated_peak", &Checks::peak_error, "peak"},
                 {"active_peak", &Checks::active_error, "active"},
                 {"reserved_peak", &Checks::reserved_error, "reserved"}};
  for (const auto& c : columns) {
    json changed = file;
    json &first = changed["memory"][2][c.key], &second = changed["memory"][4][c.key];
    const auto a = first.get<double>();
    first = first.get<int64_t>() * 2;        // simulated a: |a - 2a| / 2a
    second = second.get<int64_t>() * 4 / 5;  // |b - 0.8b| / 0.8b = 0.25
    ASSERT_GT(a, 0);
    const Checks checks = checks_of(changed);
    EXPECT_EQ(failing(checks), c.name);
    EXPECT_NEAR(*(checks.*c.error), 0.5, 1e-6) << c.key;
    changed["memory"][5][c.key] = 0;  // recorded 0, simulated not: 1
    EXPECT_EQ(*(checks_of(changed).*c.error), 1) << c.key;
  }
}

// A recorded failure that the simulation does not have: the row counts as a mark.
TEST(StudyConform, OutOfMemoryIsCompared) {
  json file = recording("fsdp2/basic_fp32");
  json row = file["memory"].back();
  row["phase"] = "oom";
  file["memory"].push_back(row);
  EXPECT_EQ(checks_of(file).oom, false);
  // And the reverse: 60 MiB beside the context's 500 do not hold this program, which was recorded whole.
  json small = recording("fsdp2/basic_fp32");
  small["environment"]["FAKE_MEM_GIB"] = "0.546875";
  EXPECT_EQ(checks_of(small).oom, false);
}

// The larger of the differences of start - t0 and end - t0, over max(recorded end - t0, 200 us).
TEST(StudyConform, TimelineError) {
  const json file = recording("fsdp2/basic_fp32");
  const auto error = [&](const char* until, const char* kind, size_t n, double start, double end) {
    json changed = file;
    json& calls = calls_of(changed, until);
    json& call = calls[find(calls, kind, n)];
    call[4] = call[4].get<double>() + start;
    call[5] = call[5].get<double>() + end;
    return *checks_of(changed).timeline_error;
  };
  json f = file;
  json& forward = calls_of(f, "step1.0.after_forward");
  size_t first = 0;  // the step's first work: the batch's memset
  while (forward[first][0] != "memset") ++first;
  const double t0 = forward[first][3].get<double>();
  // The first all-gather ends within 200 us of t0.
  ASSERT_LT(forward[find(forward, "all_gather")][5].get<double>() - t0, 190);
  EXPECT_NEAR(error("step1.0.after_forward", "all_gather", 0, 1, 3), 3.0 / 200, kRounding);
  EXPECT_NEAR(error("step1.0.after_forward", "all_gather", 0, -2, 0), 2.0 / 200, kRounding);
  json& backward = calls_of(f, "step1.0.after_backward");
  const double end = backward[find(backward, "reduce_scatter", 3)][5].get<double>() - t0;
  ASSERT_GT(end, 400);
  EXPECT_NEAR(error("step1.0.after_backward", "reduce_scatter", 3, 0, 10), 10 / (end + 10),
              kRounding);
  // Kernels are not compared.
  json moved = file;
  json& calls = calls_of(moved, "step1.0.after_backward");
  json& kernel = calls[find(calls, "kernel", 3)];
  kernel[3] = kernel[3].get<double>() + 500;
  EXPECT_LT(*checks_of(moved).timeline_error, kRounding);
}

TEST(StudyConform, Skips) {
  const json file = recording("fsdp2/basic_fp32");
  const auto skipped = [&](const json& changes, const json& environment = json::object(),
                           const std::string& torch = "2.15.0") {
    json program = file["case"], e = file["environment"];
    program.update(changes, true);
    e.update(environment);
    return recorded_program(program, e, torch).skipped;
  };
  EXPECT_EQ(skipped(json::object()), "");
  // Names the key and the value.
  EXPECT_EQ(skipped({{"strategy", "banana"}}), "strategy = \"banana\"");
  EXPECT_EQ(skipped({{"no_such_key", 3}}), "no_such_key = 3");
  EXPECT_EQ(skipped({{"wrap", "by_moon"}}), "wrap = \"by_moon\"");
  EXPECT_EQ(skipped({{"model", {{"kind", "lstm"}}}}), "model.kind = \"lstm\"");
  EXPECT_EQ(skipped({{"model", {{"no_such_key", {1, 2}}}}}), "model.no_such_key = [1,2]");
  EXPECT_EQ(skipped({{"storage", "int3"}}), "storage = \"int3\"");
  EXPECT_EQ(skipped({{"precision", {{"compute", "fp4"}}}}), "precision.compute = \"fp4\"");
  EXPECT_EQ(skipped({{"optimizer", {{"name", "lion"}}}}), "optimizer.name = \"lion\"");
  EXPECT_EQ(skipped(json::object(), {{"NO_SUCH_VARIABLE", "1"}}),
            "environment.NO_SUCH_VARIABLE = \"1\"");
  EXPECT_EQ(skipped(json::object(), json::object(), "1.13.0"), "torch = \"1.13.0\"");
  // A key that is not set is no key, and some never change the program.
  EXPECT_EQ(skipped({{"no_such_key", nullptr}, {"another", false}, {"third", json::array()}}), "");
  EXPECT_EQ(skipped({{"attribute", true}, {"history", true}, {"keep_calls", true}, {"name", "x"}}),
            "");
}

// Each size by itself is bounded as a scenario's, and all of them together.
TEST(StudyConform, SizesOutsideTheLimitsAreSkipped) {
  const json stack = recording("fsdp2/basic_fp32"), llama = recording("fsdp2/tied");
  const auto skipped = [](const json& file, const json& changes,
                          const json& environment = json::object()) {
    json program = file["case"], e = file["environment"];
    program.merge_patch(changes);
    e.update(environment);
    return recorded_program(program, e, "2.15.0").skipped;
  };
  for (const char* key : {"shard", "replicate", "steps", "micro_batch", "seq_len", "grad_accum"}) {
    EXPECT_EQ(skipped(stack, {{key, 0}}), std::string(key) + " = 0");
    EXPECT_EQ(skipped(stack, {{key, -1}}), std::string(key) + " = -1");
    EXPECT_EQ(skipped(stack, {{key, 1000000000}}), std::string(key) + " = 1000000000");
    EXPECT_EQ(skipped(stack, {{key, 1.5}}), std::string(key) + " = 1.5");
    EXPECT_EQ(skipped(stack, {{key, "8"}}), std::string(key) + " = \"8\"");
    EXPECT_EQ(skipped(stack, {{key, UINT64_MAX}}), std::string(key) + " = 18446744073709551615");
  }
  for (const char* key : {"hidden", "ffn", "layers", "heads", "kv_heads", "vocab"})
    for (const json& bad : {json(0), json(1000000000), json("many"), json::array()})
      EXPECT_EQ(skipped(llama, {{"model", {{key, bad}}}}),
                std::string("model.") + key + " = " + bad.dump());
  EXPECT_EQ(skipped(llama, {{"model", {{"kv_heads", 3}}}}), "model.kv_heads = 3");
  EXPECT_EQ(skipped(stack, {{"model", 5}}), "model = 5");
  EXPECT_EQ(skipped(stack, {{"model", {{"blocks", json::array()}}}}), "model.blocks = []");
  EXPECT_EQ(skipped(stack, {{"model", {{"blocks", 7}}}}), "model.blocks = 7");
  EXPECT_EQ(skipped(stack, {{"model", {{"blocks", {{{1e9, 1e9}}}}}}}),
            "model.blocks = 1000000000.0");
  EXPECT_EQ(skipped(stack, {{"model", {{"blocks", {{{1000000000, 1000000000}}}}}}}),
            "model.blocks = 1000000000");
  json many = json::array();
  for (int i = 0; i < 200'000; ++i) many.push_back({{1, 1}});
  EXPECT_EQ(skipped(stack, {{"model", {{"blocks", many}}}}), "model.blocks = a list of 200000");
  json wide = json::array();
  for (int i = 0; i < 60'000; ++i) wide.push_back({1, 1});
  EXPECT_EQ(skipped(stack, {{"model", {{"blocks", {wide, wide}}}}}),
            "model.blocks = 120000 parameters and more");
  EXPECT_EQ(skipped(stack, {{"model", {{"calls", {0, 99}}}}}), "model.calls = 99");
  // Each is within its bound; 9,999 layers x 60,000 passes are not.
  EXPECT_EQ(skipped(llama, {{"grad_accum", 60000}, {"model", {{"layers", 9999}}}})
                .rfind("case: too large: ", 0),
            0u);
  EXPECT_EQ(skipped(stack, {{"optimizer", 3}}), "optimizer = 3");
  EXPECT_EQ(skipped(stack, {{"setters", {{5}}}}), "setters = [5]");
  EXPECT_EQ(skipped(stack, {{"setters", {{"", "set_gradient_divide_factor", 0}}}}),
            "setters.set_gradient_divide_factor = 0");
  EXPECT_EQ(skipped(stack, {{"block_reshard", 3}}), "block_reshard = 3");
  EXPECT_EQ(skipped(stack, {{"no_such_key", std::string(1000, 'x')}}),
            "no_such_key = \"" + std::string(79, 'x') + "...");
  for (const char* key :
       {"FAKE_KERNEL_US", "FAKE_TFLOPS", "FAKE_BUS_GBPS", "FAKE_HOST_US", "FAKE_MEM_GIB"})
    for (const json& bad : {json("nan"), json("inf"), json("-1"), json("5x"), json(""),
                            json("1e999"), json(nullptr), json(-1), json(true)})
      EXPECT_EQ(skipped(stack, json::object(), {{key, bad}}),
                std::string("environment.") + key + " = " + bad.dump());
}

// A program that is accepted and that PyTorch would refuse fails; it is not skipped.
TEST(StudyConform, AcceptedButImpossible) {
  json file = recording("fsdp2/basic_fp32");
  file["case"]["reshard_after_forward"] = 3;  // of 8 ranks
  const Conformance c = conform(read_recording(file, "test"), false);
  EXPECT_EQ(c.skipped, "");
  EXPECT_EQ(c.checks.order, false);
  ASSERT_FALSE(c.checks.differences.empty());
  EXPECT_NE(c.checks.differences[0].find("3 does not divide"), std::string::npos);
}

TEST(StudyConform, NotARecording) {
  const auto error_of = [](const json& file) {
    try {
      read_recording(file, "f.json");
    } catch (const Error& e) {
      return e.text();
    }
    return std::string();
  };
  EXPECT_NE(error_of(json::array()), "");
  EXPECT_NE(error_of({{"torch", "2.15.0"}}), "");
  EXPECT_NE(error_of({{"torch", "2.15.0"}, {"case", 5}}), "");
  EXPECT_NE(error_of({{"torch", 2}, {"case", json::object()}}), "");
  json file = recording("fsdp2/basic_fp32");
  file["sections"][1]["calls"][0] = {"memset", "stream"};
  EXPECT_NE(error_of(file), "");
  EXPECT_THROW(read_json(test::recording_path("no_such_file")), Error);
  // Any other type in place of a part is an error, never a crash.
  const json good = recording("fsdp2/basic_fp32");
  const std::vector<json> others = {nullptr,       true,           -1,    1e300,     "x",
                                    json::array(), json::object(), {{1}}, UINT64_MAX};
  std::vector<json::json_pointer> parts;
  for (const char* p :
       {"/sections", "/sections/1", "/sections/1/until", "/sections/1/calls", "/sections/1/calls/0",
        "/memory", "/memory/1", "/memory/1/phase", "/memory/1/allocated", "/memory/1/active_peak",
        "/communicators", "/communicators/1", "/local_shapes", "/environment"})
    parts.emplace_back(p);
  for (size_t call = 0; call < good["sections"][1]["calls"].size() && call < 30; ++call)
    for (size_t i = 0; i < good["sections"][1]["calls"][call].size(); ++i)
      parts.push_back(json::json_pointer("/sections/1/calls") / call / i);
  for (const auto& part : parts)
    for (const json& other : others) {
      json changed = good;
      changed[part] = other;
      try {
        conform(read_recording(changed, "f.json"), false);
      } catch (const Error&) {
      }
    }
  // A call that ends too early.
  json early = good;
  for (json& call : early["sections"][1]["calls"])
    if (call[0] == "all_gather") call = {"all_gather", "s1", 5};
  EXPECT_NE(error_of(early), "");
  const std::string deep(200'000, '[');
  EXPECT_THROW(parse_json(deep, "f.json"), Error);
  EXPECT_THROW(parse_json(R"({"a": 1e999})", "f.json"), Error);
}

// The first difference of each check only; ten lines around it with verbose.
TEST(StudyConform, Differences) {
  json file = recording("fsdp2/basic_fp32");
  for (json& call : calls_of(file, "step1.0.after_forward"))
    if (call[0] == "all_gather") call[2] = 64;
  const Recording r = read_recording(file, "test");
  const auto lines = conform(r, false).checks.differences;
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines[0],
            "order: step1.0.after_forward [0]: expected all_gather 64 B on 8 ranks, got all_gather "
            "8388608 B on 8 ranks");
  EXPECT_GT(conform(r, true).checks.differences.size(), lines.size());
}

}  // namespace
}  // namespace shardsim
