// What a few bad samples cannot move. Each takes at least one value.
#pragma once

#include <vector>

namespace penstock::plan {

double median(std::vector<double> values);
// Of an even number the lower of the two in the middle: of two replicas the faster speaks for both.
double lower_median(std::vector<double> values);
double quantile(std::vector<double> values, double fraction);  // nearest rank
double mean(const std::vector<double>& values);
// Pearson's; 0 where one side does not vary. Equal lengths.
double correlation(const std::vector<double>& a, const std::vector<double>& b);
// Spearman's: that of their ranks, equal values having the mean of theirs. No outlier weighs more than a place.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace penstock::plan
