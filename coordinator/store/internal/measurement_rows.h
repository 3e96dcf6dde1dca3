// What is stored of a job's measurements: rows.h hands these tables on.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "coordinator/core/records.h"
#include "coordinator/store/internal/database.h"

namespace penstock::coordinator {

extern const char* const kMeasurementTables;

// Of a job that is known.
Status write_measurements(Database& database, const PutMeasurements& write);
Status drop_measurements(Database& database, const DropMeasurements& write);
Status erase_measurements(Database& database, const std::string& job);
// Into the jobs of these names. DataLoss: rows that no store wrote.
Status read_measurements(Database& database, std::map<std::string, StoredJob>& jobs);

}  // namespace penstock::coordinator
