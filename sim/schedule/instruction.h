// What one rank's host does, in order, as data: no time in it.
//
// An instruction is one host call on a device (a launch, a record, a wait, a synchronization) or one
// step of the allocator. Streams are small integers (sim/schedule/streams.h), buffers, events and
// works dense ids into the tables of a Schedule.
// Worked example, one synchronous all-gather on stream 2 as PyTorch's NCCL backend issues it:
//   Record 2 e5; Launch 2 w3; Record 2 e6; WaitUnlessDone 2 e6   (four host calls, three if it is
//   done at host time; oracle/fsdp2/README)
#pragma once

#include <cstdint>

#include "sim/base/dtype.h"
#include "sim/base/ids.h"
#include "sim/base/units.h"
#include "sim/model/kernels.h"

namespace shardsim {

using StreamId = uint8_t;

enum class Kind : uint8_t {
  Launch,          // a = work
  Record,          // a = event
  Wait,            // a = event; the stream waits for the event's latest record before this
  WaitUnlessDone,  // the same, and no call at all if the event has passed at host time
  HostWait,        // a = event; the host waits
  StreamSync,      // the host waits for everything on the stream
  DeviceSync,      // the host waits for everything
  EventPush,       // a = event, at the end of the host's queue number `stream`
  EventLimit,      // that queue loses the events that have passed; with more than a left, the host
                   // waits for the oldest, which leaves it too
  HostCalls,       // a = calls that take the host's time and nothing else
  Alloc,           // a = buffer, from its stream's pool
  AllocOnce,       // a = buffer that is never freed; nothing where it is there already
  Free,            // a = buffer
  UseOn,           // a = buffer that `stream` uses too: freed, it waits for that (record_stream)
  EmptyCache,      // torch.cuda.empty_cache(); a = 1: the peaks are counted anew too
  PinnedTake,      // a block of 2^a bytes of pinned host memory, reused or made (a call if made)
  PinnedRelease,   // a block of 2^a bytes becomes free when the stream gets here
  Mark,            // a = index into Schedule::marks
  HostWork,        // a = index into Schedule::host_works
};

// Which of a segment's shifts is added to the buffer id of an Alloc, Free or UseOn; `backward` also
// adds the segment's event shift to the event of a Record.
enum class Reloc : uint8_t {
  none,      // the id is the buffer
  forward,   // made in the forward of the segment's region
  backward,  // made in its backward or recomputation
  input,     // the region's input
  gradient,  // the gradient that arrives at the region's output
};
inline constexpr int kRelocs = 5;

struct Instr {
  Kind kind = Kind::Mark;
  StreamId stream = 0;
  Reloc reloc = Reloc::none;
  uint8_t looked = 0;  // WaitUnlessDone: 1: passed only counts where a later collective has looked
  uint32_t a = 0;
};

enum class WorkKind : uint8_t {
  Gemm,
  Kernel,
  AllGather,
  ReduceScatter,
  AllReduce,
  Broadcast,
  Reduce,
  CopyH2D,
  CopyD2H,
  CopyD2D,
  Memset,
};

constexpr bool is_collective(WorkKind k) {
  return k >= WorkKind::AllGather && k <= WorkKind::Reduce;
}
constexpr bool is_compute(WorkKind k) { return k <= WorkKind::Kernel; }

enum class ReduceOp : uint8_t { none, sum, avg, premul_sum };

// What a launch does: never a duration. m, n, k, batch only for Gemm (cuBLAS's column-major order).
// bytes: collectives: the whole gathered, reduced or broadcast tensor; copies and memsets: the bytes
// moved; kernels and products: bytes read plus bytes written.
struct Work {
  WorkKind kind = WorkKind::Kernel;
  DType dtype = DType::fp32;
  KernelClass kernel = KernelClass::pointwise;
  ReduceOp op = ReduceOp::none;
  bool recomputed = false;  // by activation checkpointing
  uint32_t tensors = 0;     // gathers: views of parameters that the host makes, one by one
  int32_t root = 0;         // broadcasts and reductions to one: that rank of the communicator
  CommId comm;
  GroupId group;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  int64_t flops = 0;
  Bytes bytes = 0;
  const char* name = "";  // static text, e.g. "rms_norm"
};

// What the host computes itself, on tensors that are on it, and issues nothing meanwhile: never a
// duration. A fill and a norm count two accesses an element, for they take as long as two (measured).
// Worked number: torch.optim.AdamW's loop over a parameter of n elements is 9 operators and 21 n
// accesses, its fused kernel 7 n.
struct HostWork {
  const char* name = "";  // static text, "CPU optimizer"
  int64_t elements = 0;   // of the tensors that it updates or reads
  int64_t accesses = 0;   // reads and writes of elements
  Bytes bytes = 0;        // that go to and from memory
  Bytes fresh = 0;        // of tensors made on new pages
  uint32_t operators = 0;
};

// Who holds a buffer; the categories of oracle/memory's README.
enum class Category : uint8_t {
  parameters,
  buffers,  // of the model
  optimizer_state,
  gradients,
  unsharded_parameters,
  unsharded_gradients,
  all_gather_buffers,
  reduce_scatter_buffers,
  activations,
  recomputed_activations,
  backward,
  temporary,  // of the operator that runs
  workspace,  // cuBLAS, inside one matrix product
  optimizer,  // temporaries of the optimizer step
  buckets,    // DDP's, of gradients
  count_,
};
inline constexpr int kCategories = static_cast<int>(Category::count_);

// Where memory runs out, the exception that unwinds the stack lets go what no variable and no graph
// holds: values of the expression that was being computed, and gradients on their way.
enum class Unwinds : uint8_t { no, in_its_region, always };

struct Buffer {
  Bytes bytes = 0;  // as asked for; the allocator rounds up to 512
  StreamId pool = 0;
  Category category = Category::activations;
  GroupId group;
  Unwinds unwinds = Unwinds::no;
};

}  // namespace shardsim
