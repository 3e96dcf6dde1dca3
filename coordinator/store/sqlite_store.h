// The store as one SQLite file (write-ahead log, synchronous=FULL).
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "coordinator/store/store.h"

namespace penstock::coordinator {

// Opens the file or creates it; its folder must exist. It is this process's alone until the
// store is destroyed.
//   DataLoss: the file is damaged or no database. FailedPrecondition: another program or version wrote it, or it is
//   read-only. Unavailable: another coordinator has it open, or its disk gives errors. PermissionDenied and others
//   as the system says.
// An error changes nothing in the file.
StatusOr<std::unique_ptr<Store>> open_sqlite_store(const std::string& path);

}  // namespace penstock::coordinator
