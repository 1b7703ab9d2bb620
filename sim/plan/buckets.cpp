#include "sim/plan/buckets.h"

#include <algorithm>
#include <limits>

namespace shardsim {

namespace {

constexpr Bytes kFirstBucket = kMiB;

std::vector<Bytes> in_bytes(const std::vector<double>& caps_mb) {
  std::vector<Bytes> out;
  out.reserve(caps_mb.size());
  for (double mb : caps_mb) out.push_back(static_cast<Bytes>(mb * static_cast<double>(kMiB)));
  return out;
}

// Without a cap of the user's the first bucket is a small one.
std::vector<Bytes> size_limits(const DdpOptions& o) {
  if (!o.bucket_cap_mb_list.empty()) return in_bytes(o.bucket_cap_mb_list);
  if (o.bucket_cap_mb) return in_bytes({*o.bucket_cap_mb});
  return {kFirstBucket, 25 * kMiB};
}

}  // namespace

Buckets assign_buckets(std::span<const BucketTensor> tensors, std::span<const Bytes> limits) {
  struct Open {
    DType dtype = DType::fp32;
    size_t limit = 0;
    Bytes bytes = 0;
    std::vector<uint32_t> indices;
  };
  std::vector<Open> open;
  Buckets out;
  for (const BucketTensor& t : tensors) {
    auto b =
        std::find_if(open.begin(), open.end(), [&](const Open& x) { return x.dtype == t.dtype; });
    if (b == open.end()) b = open.insert(open.end(), {t.dtype, 0, 0, {}});
    b->indices.push_back(t.index);
    b->bytes += t.bytes;
    if (b->bytes < limits[b->limit]) continue;
    out.push_back(std::move(b->indices));
    b->indices.clear();
    b->bytes = 0;
    b->limit = std::min(b->limit + 1, limits.size() - 1);
  }
  // What is left comes in the order of a hash table, the type that came last first (seen with two).
  for (auto b = open.rbegin(); b != open.rend(); ++b)
    if (!b->indices.empty()) out.push_back(std::move(b->indices));
  return out;
}

Buckets initial_buckets(std::span<const BucketTensor> tensors, const DdpOptions& o) {
  std::vector<Bytes> limits = size_limits(o);
  const bool one = o.bucket_cap_mb_list.empty() && (o.static_graph || !o.find_unused_parameters);
  if (one) limits = {std::numeric_limits<Bytes>::max()};
  Buckets out = assign_buckets(tensors, limits);
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return *std::min_element(a.begin(), a.end()) < *std::min_element(b.begin(), b.end());
  });
  std::reverse(out.begin(), out.end());
  return out;
}

Buckets rebuilt_buckets(std::span<const BucketTensor> ready, const DdpOptions& o) {
  std::vector<BucketTensor> order(ready.begin(), ready.end());
  if (o.small_last_bucket) std::reverse(order.begin(), order.end());
  Buckets out = assign_buckets(order, size_limits(o));
  if (o.small_last_bucket) std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace shardsim
