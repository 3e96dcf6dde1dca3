// Where a person finds the names that there are. Pure.
#pragma once

#include <string>

namespace penstock::client {

// What a coordinator says of a name that it does not know, with the command that lists those of its kind; any other text stays.
std::string with_list_of_names(const std::string& not_found);

}  // namespace penstock::client
