// A value of a section of a job file, replaced in its text, for those who rewrite a job file in place.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"

namespace penstock::plan {

// Where a value stands: "parallel", "split".
struct KeyInSection {
  const char* section;
  const char* key;
};

// The same text, line for line, with `value`, which stands on one line, in place of what the key has, or as the section's
// first key where it has none; comments inside of the old value are gone. Nothing where the text has no such section to write it
// into. Whoever calls reads the text again: aliases and lists that are broken in an odd way may make another job of it.
// InvalidArgument when the text is no YAML that parse_job_spec reads.
StatusOr<std::optional<std::string>> with_value(const std::string& yaml, const KeyInSection& place,
                                                const std::string& value);

// The same text with a key of its own in front of the first section. InvalidArgument as above, and when there is no section.
StatusOr<std::string> with_first_key(const std::string& yaml, const char* key, const std::string& value);

}  // namespace penstock::plan
