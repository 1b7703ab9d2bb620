// `shardsim memory replay`: a recorded history of allocations on the caching allocator, under the
// settings it was recorded with or others: what is reserved, and where free bytes sit at the peak.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/quantity.h"
#include "sim/cli/command.h"
#include "sim/cli/table.h"
#include "sim/study/memory_replay.h"

namespace shardsim {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::string trace;
  std::optional<std::string> conf;
  std::optional<double> device_gib;
  int device = 0;
  int top = 10;
};

// A trace that names no device is played on one that nothing fills.
constexpr Bytes kEndless = 1024 * kGiB;

struct Replayed {
  MemoryTrace trace;
  MemoryReplayOptions options;
  MemoryReplay replay;
  bool own_settings = false;
  std::string settings_text;
};

Replayed replay(const Options& options) {
  Replayed r;
  r.trace = read_memory_trace(options.trace, options.device);
  r.own_settings = !options.conf && !options.device_gib;
  r.settings_text = options.conf.value_or(r.trace.settings_text);
  r.options.settings = options.conf ? parse_allocator_settings(*options.conf) : r.trace.settings;
  r.options.device = r.trace.device.value_or(DeviceMemory{kEndless, 0});
  if (options.device_gib) {
    r.options.device = DeviceMemory{};
    r.options.device.total = static_cast<Bytes>(*options.device_gib * static_cast<double>(kGiB));
    if (r.options.device.total <= r.options.device.outside)
      throw Error(fmt::format("--device-gib {}: the CUDA context alone takes {}",
                              *options.device_gib, format_bytes(r.options.device.outside)));
  }
  const AllocatorSettings& s = r.options.settings;
  if (!r.trace.device && !options.device_gib && (s.memory_fraction < 1 || s.gc_threshold > 0))
    throw Error(
        "these settings are fractions of the device's memory, which the trace does not name",
        {options.trace}, "give it with --device-gib");
  r.options.check = r.own_settings && r.trace.placed;
  r.options.top = static_cast<size_t>(options.top);
  r.replay = replay_memory(r.trace, r.options);
  return r;
}

std::string buffer_text(const MemoryTrace& trace, uint32_t buffer) {
  if (buffer >= trace.buffers.size()) return "";
  const TraceBuffer& b = trace.buffers[buffer];
  const std::string size = format_bytes(b.bytes);
  if (!b.origin.empty()) return fmt::format("{}: {}", size, b.origin);
  return fmt::format("{} of row {}", size, b.allocated);
}

Table free_block_table(const Replayed& r) {
  Table table({{"size_bytes", "bytes free"},
               {"segment", "segment"},
               {"offset_bytes", "offset"},
               {"stream", "stream"},
               {"pool", "pool"},
               {"left_by", "left by"},
               {"segment_kept_by", "segment kept by"}});
  for (const FreeBlockReport& f : r.replay.free_blocks) {
    const auto cell = [&](uint32_t buffer) {
      const std::string text = buffer_text(r.trace, buffer);
      return text.empty() ? Cell() : Cell(text);
    };
    const std::string pool =
        std::string(f.small ? "small" : "large") + (f.expandable ? ", expandable" : "");
    const std::string stream =
        f.stream < r.trace.streams.size() ? r.trace.streams[f.stream] : std::to_string(f.stream);
    table.add({f.size, f.segment, f.offset, stream, pool, cell(f.left_by),
               f.whole ? Cell() : cell(f.held_by)});
  }
  return table;
}

std::string text_of(const Replayed& r) {
  const MemoryReplay& m = r.replay;
  std::string out;
  const auto line = [&](const std::string& key, const std::string& value) {
    out += fmt::format("{:<20} {}\n", key, value);
  };
  line("trace", fmt::format("{} ({}, {} rows, {} buffers)", r.trace.file, r.trace.kind,
                            r.trace.rows.size(), r.trace.buffers.size()));
  for (const auto& [reason, count] : r.trace.left_out)
    line("left out", fmt::format("{} rows: {}", count, reason));
  line("settings", r.settings_text.empty() ? "(default)" : r.settings_text);
  if (m.oom_row)
    line("out of memory", fmt::format("at row {}; the figures are up to it\n{:<20} {}", *m.oom_row,
                                      "", m.oom.text()));
  std::string recorded;
  if (r.trace.reserved_peak)
    recorded = fmt::format(", recorded {}", format_bytes(*r.trace.reserved_peak));
  line("reserved peak",
       fmt::format("{} ({} bytes){}", format_bytes(m.reserved_peak), m.reserved_peak, recorded));
  line("allocated peak", format_bytes(m.allocated_peak));
  line("active peak", format_bytes(m.active_peak));
  line("requested peak", format_bytes(m.requested_peak));
  line("device calls", fmt::format("{} that took memory, {} that gave it back, {} retries",
                                   m.device_allocs, m.device_frees, m.retries));
  if (m.check) {
    const TraceCheck& c = *m.check;
    line("placement", fmt::format("{} of {} buffers where recorded, {} of {} segment events{}",
                                  c.allocs - c.misplaced, c.allocs,
                                  c.segments - c.segments_elsewhere, c.segments,
                                  c.given > 0 ? fmt::format("; {} buffers in segment -1 taken from "
                                                            "the rows",
                                                            c.given)
                                              : ""));
    for (const std::string& d : c.differences) out += "  " + d + "\n";
  }
  out += fmt::format(
      "\nWhere reserved first reached its peak, at row {}: {} allocated, {} active, {} free in "
      "segments in use, {} in whole free segments\n",
      m.peak_row, format_bytes(m.peak_allocated), format_bytes(m.peak_active),
      format_bytes(m.peak_free_split), format_bytes(m.peak_free_whole));
  if (!m.free_blocks.empty())
    out += "The largest free blocks then:\n\n" + free_block_table(r).text();
  return out;
}

std::string json_of(const Replayed& r) {
  const MemoryReplay& m = r.replay;
  ordered_json j;
  j["schema_version"] = 1;
  j["trace"] = r.trace.file;
  j["kind"] = r.trace.kind;
  j["rows"] = r.trace.rows.size();
  j["buffers"] = r.trace.buffers.size();
  j["left_out"] = r.trace.left_out;
  j["settings"] = r.settings_text;
  j["device_bytes"] = r.options.device.total;
  j["reserved_peak_bytes"] = m.reserved_peak;
  j["recorded_reserved_peak_bytes"] =
      r.trace.reserved_peak ? ordered_json(*r.trace.reserved_peak) : ordered_json(nullptr);
  j["allocated_peak_bytes"] = m.allocated_peak;
  j["active_peak_bytes"] = m.active_peak;
  j["requested_peak_bytes"] = m.requested_peak;
  j["device_allocs"] = m.device_allocs;
  j["device_frees"] = m.device_frees;
  j["retries"] = m.retries;
  j["oom"] = m.oom_row ? ordered_json({{"row", *m.oom_row}, {"message", m.oom.text()}})
                       : ordered_json(nullptr);
  j["at_peak"] = {{"row", m.peak_row},
                  {"allocated_bytes", m.peak_allocated},
                  {"active_bytes", m.peak_active},
                  {"free_in_use_bytes", m.peak_free_split},
                  {"free_whole_bytes", m.peak_free_whole}};
  j["free_blocks"] = ordered_json::parse(free_block_table(r).json());
  ordered_json check = nullptr;
  if (m.check)
    check = {{"equal", m.check->equal(m.reserved_peak)},
             {"allocs", m.check->allocs},
             {"misplaced", m.check->misplaced},
             {"given", m.check->given},
             {"segment_events", m.check->segments},
             {"segment_events_elsewhere", m.check->segments_elsewhere},
             {"differences", m.check->differences}};
  j["check"] = check;
  return j.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

int run(const Options& options, const Context& context) {
  const Replayed r = replay(options);
  switch (context.format) {
    case Format::table: write_output(context, text_of(r)); break;
    case Format::json: write_output(context, json_of(r)); break;
    case Format::csv: write_output(context, free_block_table(r).csv()); break;
  }
  const MemoryReplay& m = r.replay;
  return m.check && !m.check->equal(m.reserved_peak) ? kCheckFailed : kOk;
}

}  // namespace

void add_memory(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* memory = app.add_subcommand("memory", "Studies of the caching allocator");
  memory->require_subcommand(1);
  memory->footer(
      "Examples:\n"
      "  shardsim memory replay snapshot.pickle\n"
      "  shardsim memory replay --help");
  CLI::App* command = memory->add_subcommand(
      "replay", "Plays a recorded history of allocations on the caching allocator");
  command
      ->add_option("trace", options->trace,
                   "A recording, or a PyTorch memory snapshot as pickle or JSON")
      ->required();
  command
      ->add_option("--conf", options->conf,
                   "Allocator settings, as PYTORCH_CUDA_ALLOC_CONF (default: the trace's own)")
      ->type_name("TEXT");
  command
      ->add_option("--device-gib", options->device_gib,
                   "Memory of the device, the CUDA context included (default: the trace's own)")
      ->type_name("N")
      ->check(CLI::Range(0.0, 1024.0));
  command->add_option("--device", options->device, "Which device of a snapshot (default 0)")
      ->check(CLI::Range(0, 1023));
  command->add_option("--top", options->top, "How many free blocks to list (default 10)")
      ->check(CLI::Range(0, 100000));
  add_output_options(*command, context);
  command->footer(
      "A recording played with its own settings is checked: exit code 2 if a buffer lands "
      "elsewhere.\n"
      "Examples:\n"
      "  shardsim memory replay snapshot.pickle\n"
      "  shardsim memory replay snapshot.pickle --conf expandable_segments:True --device-gib 80");
  command->callback([options, &context] {
    context.run = [options, &context] { return run(*options, context); };
  });
}

}  // namespace shardsim
