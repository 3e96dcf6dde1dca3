#include "worker/transport/in_process.h"

#include "worker/transport/endpoint_contract.h"

namespace penstock::worker {
namespace {

const TransportUnderTest kInProcess{.name = "in_process", .across_processes = false, .make_group = [] {
                                      return [hub = make_in_process_hub()] {
                                        return make_in_process_endpoint(hub);
                                      };
                                    }};
INSTANTIATE_TEST_SUITE_P(InProcess, EndpointContract, cases_of(kInProcess), case_name);

TEST(InProcessRendezvous, key_is_published_once) {
  InProcessRendezvous rendezvous;
  EXPECT_TRUE(rendezvous.publish(RankIndex(0), "address", "a").ok());
  EXPECT_EQ(rendezvous.publish(RankIndex(0), "address", "b").code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(*rendezvous.look_up(RankIndex(0), "address", 0s), "a");
}

}  // namespace
}  // namespace penstock::worker
