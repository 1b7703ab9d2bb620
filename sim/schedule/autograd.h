// The order in which backward runs: nodes are numbered in the order forward made them (PyTorch's
// sequence numbers); a node is ready when every node that feeds it has run, and of the ready nodes
// the highest number runs first (torch/csrc/autograd/engine.cpp). Gradients that meet at a node's
// output are accumulated as they arrive. What a node does is the caller's: hooks, recomputation and
// reductions are callbacks, so their order comes out of this one rule.
// Worked example: y = f(x) + g(h(x)), made in the order f 0, h 1, g 2, add 3: backward runs 3, 2, 1, 0.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace shardsim {

// Grad is a value with valid(); a default one is not.
template <class Grad>
class Autograd {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr int kMax = 5;  // inputs and outputs of a node

  // Gradient of one input goes to output `slot` of `node`.
  struct Edge {
    uint32_t node = kNone;
    uint8_t slot = 0;
  };
  using Edges = std::array<Edge, kMax>;
  using Grads = std::array<Grad, kMax>;

  uint32_t add(const Edges& edges) {
    nodes_.push_back({edges, {}, 0, false});
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  size_t size() const { return nodes_.size(); }
  void clear() { nodes_.clear(); }

  // Runs everything that `root` reaches, `gradient` arriving at its output 0. The caller's
  //   execute(node, in, out)  consumes `in`, one gradient an output, and fills one an input;
  //   accumulate(into, g)     adds g to a gradient that has already arrived;
  //   routed(node)            runs when the node's gradients have been handed on (AccumulateGrad
  //                           nodes go before any other, so parameters' gradients land here).
  template <class Caller>
  void backward(uint32_t root, Grad gradient, Caller& caller) {
    reach(root);
    nodes_[root].grads[0] = gradient;
    ready_.assign(1, root);
    while (!ready_.empty()) {
      std::pop_heap(ready_.begin(), ready_.end());
      const uint32_t n = ready_.back();
      ready_.pop_back();
      Grads in = nodes_[n].grads;
      nodes_[n].grads = {};
      nodes_[n].reached = false;
      Grads out{};
      caller.execute(n, in, out);
      const Edges edges = nodes_[n].edges;
      for (int i = 0; i < kMax; ++i) {
        if (edges[i].node == kNone) continue;
        Node& to = nodes_[edges[i].node];
        if (out[i].valid()) {
          Grad& g = to.grads[edges[i].slot];
          if (g.valid())
            caller.accumulate(g, out[i]);
          else
            g = out[i];
        }
        if (--to.waiting == 0) {
          ready_.push_back(edges[i].node);
          std::push_heap(ready_.begin(), ready_.end());
        }
      }
      caller.routed(n);
    }
  }

 private:
  struct Node {
    Edges edges;
    Grads grads;
    int32_t waiting = 0;  // edges into it that have not run
    bool reached = false;
  };

  // Counts, for every node that root reaches, the edges into it.
  void reach(uint32_t root) {
    stack_.assign(1, root);
    nodes_[root].reached = true;
    nodes_[root].waiting = 0;
    while (!stack_.empty()) {
      const uint32_t n = stack_.back();
      stack_.pop_back();
      for (const Edge& e : nodes_[n].edges) {
        if (e.node == kNone) continue;
        Node& to = nodes_[e.node];
        if (!to.reached) {
          to.reached = true;
          to.waiting = 0;
          stack_.push_back(e.node);
        }
        ++to.waiting;
      }
    }
  }

  std::vector<Node> nodes_;
  std::vector<uint32_t> ready_, stack_;
};

}  // namespace shardsim
