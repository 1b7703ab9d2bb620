#include "sim/config/loss.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardsim {
namespace {

// Each chunk is laid out by itself.
constexpr int64_t kMostChunks = 4096;

void read_chunks(const Map& map, Training& training) {
  const Loss& loss = training.loss;
  const bool tokens = loss.kind != Loss::Kind::plain;
  if (tokens) training.loss_chunks = 8;
  const std::optional<Value> v = map.find("chunks");
  if (!v) return;
  if (tokens) {
    training.loss_chunks =
        v->whole(1, std::min(kMostChunks, training.micro_batch * training.seq_len),
                 "chunks of the tokens of one pass");
    return;
  }
  if (loss.in_forward)
    map.fail_key("chunks", "a plain loss inside the model's forward is computed at once",
                 "kind: checkpointed, fused and split_logits have chunks");
  training.loss_chunks = v->whole(1, training.seq_len, "slices of the sequence");
}

}  // namespace

void read_loss(const Value& value, const Architecture& model, Training& training) {
  const Map map(value, {"float_logits", "float_loss", "chunks", "kind", "in_forward", "keep_logits",
                        "labels", "divide"});
  if (!has_cross_entropy(model.family)) {
    if (map.has("chunks"))
      map.fail_key("chunks", "only the loss of a decoder is computed in slices of the sequence");
    if (map.has("float_logits"))
      map.fail_key("float_logits", fmt::format("a {} model has float_loss", model.model_type));
    for (std::string_view key : {"kind", "in_forward", "keep_logits", "labels"})
      if (map.has(key)) map.fail_key(key, "only the loss of a decoder has this key");
  }
  Loss& loss = training.loss;
  if (const std::optional<Value> v = map.find("kind"))
    loss.kind = v->choice<Loss::Kind>({{"plain", Loss::Kind::plain},
                                       {"checkpointed", Loss::Kind::checkpointed},
                                       {"fused", Loss::Kind::fused},
                                       {"split_logits", Loss::Kind::split_logits}});
  loss.in_forward = loss.kind != Loss::Kind::plain;
  if (const std::optional<Value> v = map.find("in_forward")) {
    const bool inside = v->boolean();
    if (!inside && loss.in_forward) v->fail("only kind: plain can be computed outside the forward");
    loss.in_forward = inside;
  }
  read_chunks(map, training);
  if (const std::optional<Value> v = map.find("float_logits")) {
    training.float_logits = v->boolean();
    if (loss.kind == Loss::Kind::fused && !training.float_logits)
      v->fail("a fused loss computes in fp32");
  }
  if (const std::optional<Value> v = map.find("float_loss")) {
    if (has_cross_entropy(model.family)) map.fail_key("float_loss", "a decoder has float_logits");
    training.float_loss = v->boolean();
  }
  if (const std::optional<Value> v = map.find("keep_logits")) {
    using Keep = Loss::KeepLogits;
    loss.keep_logits =
        v->choice<Keep>({{"none", Keep::no}, {"as_made", Keep::as_made}, {"fp32", Keep::fp32}});
    if (loss.keep_logits != Keep::no && (!loss.in_forward || loss.kind != Loss::Kind::plain))
      v->fail("needs in_forward: true and kind: plain, which make all logits in the model");
  }
  if (const std::optional<Value> v = map.find("labels")) loss.labels = v->boolean();
  if (const std::optional<Value> v = map.find("divide")) loss.divided = v->boolean();
  if (loss.kind == Loss::Kind::fused && training.precision.autocast)
    map.fail_key("kind", "this build cannot play a fused loss under autocast",
                 "set precision.compute: bf16 in place of autocast, or kind: checkpointed");
}

}  // namespace shardsim
