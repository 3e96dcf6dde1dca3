// Hands out small numbers, the lowest free one first; so that the count ever used is the most held at once.
#pragma once

#include <functional>
#include <queue>
#include <vector>

namespace penstock::plan::internal {

class LowestFree {
 public:
  int take() {
    ++held_;
    if (returned_.empty()) return used_++;
    const int slot = returned_.top();
    returned_.pop();
    return slot;
  }
  void give_back(int slot) {
    --held_;
    returned_.push(slot);
  }
  int held() const { return held_; }
  int used() const { return used_; }

 private:
  std::priority_queue<int, std::vector<int>, std::greater<>> returned_;
  int held_ = 0;
  int used_ = 0;
};

}  // namespace penstock::plan::internal
