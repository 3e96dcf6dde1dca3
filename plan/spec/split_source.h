// `parallel: {split: ...}` in the text of a job file, replaced in place.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// "[[embedding, 0], [1, head]]", on one line.
std::string to_text(const Split& split);

// Of a stage, for people: "embedding 0-2 head".
std::string items_text(const std::vector<Item>& items);

// The same text, line for line, with this split in place of the one that it has or leaves out; comments inside of the old
// one are gone. InvalidArgument when the text is no job file, has no parallel section to write it into, or another one
// would come of it (aliases that no reader of ours takes, a list broken in an odd way): then the message has the split.
StatusOr<std::string> with_split(const std::string& yaml, const Split& split);

}  // namespace penstock::plan
