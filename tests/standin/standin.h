// Libraries that stand in for libcudart, libcublasLt and libnccl where there is no GPU: device memory
// is host memory, streams are queues that a virtual clock plays, and every call is written down. What
// a kernel takes is made up (2 us and a time by its bytes or FLOPs), so runs repeat exactly. Kernels
// have no effect but those that write and compare data (backends/cuda/kernels.cu), and collectives
// move and add real data.
//
// Ranks are threads of one process, each on its own device. With `alone` one rank plays, and the
// others of its world are taken to be there at once; their data is not.
//
// A host call takes 1 us of its thread's virtual time; a query of something that has not ended takes
// 5 us, so that waiting loops come to an end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace standin {

struct Record {
  int device = 0;
  std::string call;  // "cudaStreamWaitEvent"; of a kernel its name
  int stream = -1;   // in the order they were made on the device, from 0
  int event = -1;
  int64_t bytes = 0;  // moved, allocated; a collective's count of elements
  int64_t extra = 0;  // the stream's priority, whether an event is timed, a split's colour
  const void* in = nullptr;
  const void* out = nullptr;
  int comm = -1;            // in the order they were made on the device
  int m = 0, n = 0, k = 0;  // cublasLtMatmul
  int64_t issued_ns = 0;
};

// The `nth` call (from 0) of a function on a device returns `code`. Of the name "hang": the nth
// collective never ends; of "async": the communicator reports the code from its nth collective on.
struct Fault {
  std::string call;
  int nth = 0;
  int code = 1;
  int device = 0;
};

struct Setup {
  int devices = 1;
  int64_t memory = int64_t{80} << 30;
  bool alone = false;
  std::vector<Fault> faults;
};

// Everything anew; no stream or communicator may be left. Without it the variables STANDIN_DEVICES,
// STANDIN_MEMORY, STANDIN_ALONE=1 and STANDIN_FAULT=call:nth:code:device count.
void set_up(const Setup& setup);
std::vector<Record> records(int device);
// Bytes that cudaMalloc gave and cudaFree did not take back; streams, events and communicators left.
int64_t live_bytes(int device);
int live_objects(int device);

}  // namespace standin
