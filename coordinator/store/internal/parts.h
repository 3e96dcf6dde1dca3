// Rows of tables that hold parts of jobs.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "coordinator/core/records.h"
#include "coordinator/store/internal/database.h"

namespace penstock::coordinator {

// Calls `take(job, row)` for every row whose first column names a job that is known.
template <typename Take>
Status read_parts(Database& database, const std::string& sql, std::map<std::string, StoredJob>& jobs,
                  Take take) {
  Statement rows = database.prepare(sql);
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, rows.step());
    if (!more) return ok_status();
    auto job = jobs.find(rows.text());
    if (job != jobs.end()) PENSTOCK_RETURN_IF_ERROR(take(job->second, rows));
  }
}

}  // namespace penstock::coordinator
