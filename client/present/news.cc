#include "client/present/news.h"

#include <utility>

namespace penstock::client {
namespace {

std::string ended_line(const std::string& text) {
  return text.ends_with('\n') ? text : text + "\n";
}

}  // namespace

std::string News::next(const std::string& heading, const std::vector<Entry>& entries) {
  std::string text;
  std::map<std::string, std::string> said;
  for (const Entry& entry : entries) {
    const auto before = said_.find(entry.name);
    if (before == said_.end() || before->second != entry.said) text += ended_line(entry.shown);
    said[entry.name] = entry.said;
  }
  said_ = std::move(said);
  if (text.empty() || heading.empty() || heading == heading_) return text;
  heading_ = heading;
  return ended_line(heading) + text;
}

}  // namespace penstock::client
