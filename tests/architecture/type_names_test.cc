// A type's name stands in one header of its namespace. Two definitions of one name in one program are no error to any
// compiler or linker, and undefined: templates over them, as std::deque<T>, become one or the other's.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

namespace penstock {
namespace {

namespace fs = std::filesystem;

// Of types that begin in the first column, inside the namespace that the header opened last: "penstock::worker::Stage".
std::vector<std::string> types_of(std::istream& header) {
  static const std::regex opened(R"(^namespace ([a-z_:]+) \{)");
  static const std::regex defined(R"(^(?:struct|class) ([A-Z]\w*)(?: final)?(?: :.*| \{.*)?$)");
  std::vector<std::string> types;
  std::string scope, line;
  while (std::getline(header, line)) {
    std::smatch match;
    if (std::regex_search(line, match, opened)) {
      scope = match[1];
    } else if (line.find('{') != std::string::npos && std::regex_match(line, match, defined)) {
      types.push_back(scope + "::" + match[1].str());
    }
  }
  return types;
}

TEST(TypeNames, have_one_definition_each) {
  std::map<std::string, std::vector<std::string>> headers;  // by type
  for (const char* top : {"base", "plan", "proto", "kernels", "worker", "coordinator", "client"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(PENSTOCK_SOURCE_DIR) / top)) {
      const std::string file = fs::relative(entry.path(), PENSTOCK_SOURCE_DIR);
      if (entry.path().extension() != ".h" || file.find("/testing/") != std::string::npos) continue;
      std::ifstream source(entry.path());
      for (const std::string& type : types_of(source)) headers[type].push_back(file);
    }
  }
  EXPECT_GT(headers.size(), 300u);
  for (const auto& [type, files] : headers) {
    EXPECT_EQ(files.size(), 1u) << type << " is defined in " << files.front() << " and " << files.back();
  }
}

}  // namespace
}  // namespace penstock
