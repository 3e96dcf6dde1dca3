#include "worker/transport/gloo/endpoint.h"

#include "worker/transport/endpoint_contract.h"

namespace penstock::worker {
namespace {

const TransportUnderTest kGloo{
    .name = "gloo", .across_processes = true, .make_group = [] { return make_gloo_endpoint; }};
INSTANTIATE_TEST_SUITE_P(Gloo, EndpointContract, cases_of(kGloo), case_name);
INSTANTIATE_TEST_SUITE_P(Gloo, EndpointLossContract, loss_cases_of(kGloo), case_name);

TEST(GlooEndpoint, bind_address_that_is_a_name_is_refused) {
  // Gloo resolves it itself, and ends with a segmentation fault when it cannot.
  InProcessRendezvous rendezvous;
  const auto endpoint = make_gloo_endpoint();
  const Status status = endpoint->open({"pipeline", RankIndex(0), 2, "no-such-host.invalid"}, rendezvous, 1s);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(message(status).find("no-such-host.invalid"), std::string::npos);
}

TEST(GlooEndpoint, address_list_of_a_wrong_size_is_refused) {
  // Gloo cuts it into addresses without looking: a peer of another version must not make us read beyond its
  // end.
  InProcessRendezvous rendezvous;
  ASSERT_TRUE(rendezvous.publish(RankIndex(1), "host", "elsewhere").ok());
  ASSERT_TRUE(rendezvous.publish(RankIndex(1), "address", "short").ok());
  const auto endpoint = make_gloo_endpoint();
  const Status status = endpoint->open({"pipeline", RankIndex(0), 2, "127.0.0.1"}, rendezvous, 1s);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace penstock::worker
