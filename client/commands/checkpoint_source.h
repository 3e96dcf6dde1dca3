// The folder that is meant by JOB|DIR.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "client/commands/commands.h"
#include "client/commands/model_folder.h"

namespace penstock::client {

// A folder of that name, else the final weights of the job of that name, else its newest checkpoint, which the
// coordinator tells. NotFound: neither; FailedPrecondition: the job has none, with its state.
StatusOr<std::string> checkpoint_folder(const std::string& source, const ConnectionOptions& connection);

struct OpenedSource {
  std::string path;
  StatusOr<ModelFolder> folder;
};
// That folder, opened. A job that runs may remove a checkpoint between the coordinator's answer and the opening: then its
// newest one is asked for again, a few times within half a second. One that is removed later is an error of whatever is
// read then.
StatusOr<OpenedSource> open_source(const std::string& source, const ConnectionOptions& connection);
// The same, of whatever folder `resolve` says, each time that it is called; `wait` comes between two tries.
StatusOr<OpenedSource> open_resolved(const std::function<StatusOr<std::string>()>& resolve,
                                     const std::function<void()>& wait);

// A failure, and what may have happened where the folder is not there any more. Any other status stays as it is.
Status explained(const Status& status, const std::string& folder);
bool is_gone(const std::string& folder);

}  // namespace penstock::client
