// Checks the fields of one message, keeping the first thing that is wrong.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace penstock::codec {

class Checks {
 public:
  // `message` stands in front of every field's name; "" for the entries of a list.
  explicit Checks(std::string message) : message_(std::move(message)) {}

  // least <= value <= most. Returns the value, so that a field is checked where it is read, or `least` where
  // it is refused, so that arithmetic on it cannot overflow.
  int64_t range(const std::string& field, int64_t value, int64_t least, int64_t most);
  void count(const std::string& field, size_t value, size_t most);
  void equal(const std::string& field, int64_t value, int64_t expected, const std::string& because);
  // Letters, digits and -._:/@[] only; not empty unless `may_be_empty`.
  void name(const std::string& field, const std::string& value, bool may_be_empty = false);
  void size(const std::string& field, const std::string& value, size_t most);
  // Finite and not negative.
  void seconds(const std::string& field, double value);
  void require(bool good, const std::string& field, const std::string& expected, const std::string& found);
  // A nested message's own verdict, with this one's name in front.
  void nested(const std::string& field, const Status& status);

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }

 private:
  std::string place(const std::string& field) const;

  std::string message_;
  Status status_;
};

}  // namespace penstock::codec
