#include "coordinator/core/store_order/store_order.h"

#include <gtest/gtest.h>

namespace penstock::coordinator {
namespace {

std::string names(const std::vector<Continuation>& released) {
  std::string text;
  for (const Continuation& what : released) text += std::get<EndJob>(what).job;
  return text;
}

TEST(StoreOrder, releases_what_waited_for_durable_tickets_in_order) {
  StoreOrder order;
  const Ticket first = order.next_ticket();
  const Ticket second = order.next_ticket();
  order.after(second, EndJob{"c"});
  order.after(first, EndJob{"a"});
  order.after(first, EndJob{"b"});
  EXPECT_EQ(order.pending(), 2u);
  EXPECT_EQ(names(order.durable(first)), "ab");
  EXPECT_TRUE(order.is_durable(first));
  EXPECT_FALSE(order.is_durable(second));
  EXPECT_EQ(names(order.durable(second)), "c");
  EXPECT_EQ(order.held(), 0u);
  EXPECT_EQ(order.pending(), 0u);
}

TEST(StoreOrder, one_answer_covers_all_tickets_before_it) {
  // The store commits groups and tells the last ticket only.
  StoreOrder order;
  for (const char* name : {"a", "b", "c"}) order.after(order.next_ticket(), EndJob{name});
  EXPECT_EQ(names(order.durable(3)), "abc");
}

TEST(StoreOrder, answers_that_come_late_or_from_nowhere_change_nothing) {
  StoreOrder order;
  order.after(order.next_ticket(), EndJob{"a"});
  EXPECT_EQ(names(order.durable(0)), "");
  EXPECT_EQ(names(order.durable(1000)), "a");
  EXPECT_EQ(names(order.durable(1)), "");
  order.after(order.next_ticket(), EndJob{"b"});
  EXPECT_EQ(order.pending(), 1u);
  EXPECT_EQ(names(order.durable(2)), "b");
}

}  // namespace
}  // namespace penstock::coordinator
