// A graph of events and what each waits for.
#pragma once

#include <cstddef>
#include <vector>

namespace penstock::checking {

class Graph {
 public:
  explicit Graph(size_t nodes) : after_(nodes), waits_(nodes, 0) {}

  void add(size_t first, size_t then) {
    after_[first].push_back(then);
    ++waits_[then];
  }

  // Kahn: takes away what waits for nothing until nothing is left, or a circle.
  bool has_circle() const {
    std::vector<size_t> waits = waits_;
    std::vector<size_t> free;
    for (size_t node = 0; node < waits.size(); ++node) {
      if (waits[node] == 0) free.push_back(node);
    }
    size_t taken = 0;
    while (!free.empty()) {
      const size_t node = free.back();
      free.pop_back();
      ++taken;
      for (const size_t next : after_[node]) {
        if (--waits[next] == 0) free.push_back(next);
      }
    }
    return taken < waits.size();
  }

 private:
  std::vector<std::vector<size_t>> after_;
  std::vector<size_t> waits_;
};

}  // namespace penstock::checking
