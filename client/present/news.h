// What `get -w` prints: of every look at a list, the entries that say something new. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace penstock::client {

struct Entry {
  std::string name;   // the same from look to look
  std::string said;   // what counts: an entry with a new one is printed
  std::string shown;  // its line or lines; may hold an age, which moves without being news
};

class News {
 public:
  // The entries with news since the look before, each on lines of its own; all at the first look, "" where
  // there are none. `heading` comes first, and again whenever it has changed with the columns' widths.
  std::string next(const std::string& heading, const std::vector<Entry>& entries);

 private:
  std::string heading_;
  std::map<std::string, std::string> said_;  // by name, of the look before
};

}  // namespace penstock::client
