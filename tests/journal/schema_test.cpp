// The Cap'n Proto schema and the C++ structs are the same thing said twice.
#include <capnp/message.h>
#include <capnp/schema.h>

#include "journal/reflect_capnp.h"
#include "journal/schema/event.capnp.h"
#include "tests/catch.h"
#include "tests/journal/random_fill.h"

namespace regrow {
namespace {

capnp::StructSchema event_union() {
  auto record = capnp::Schema::from<wire::EventRecord>();
  return record.getFieldByName("event").getType().asStruct();
}

template <size_t... I>
std::vector<std::string> kind_names(std::index_sequence<I...>) {
  return {camel_case(std::variant_alternative_t<I, Event>::kTypeName)...};
}

template <class T>
void require_same(const capnp::StructSchema& schema) {
  auto differences = check_schema<T>(schema);
  for (const auto& difference : differences) UNSCOPED_INFO(difference);
  REQUIRE(differences.empty());
}

TEST_CASE("every event struct and its schema agree field by field", "[schema]") {
  require_same<Event>(event_union());
  require_same<Actor>(capnp::Schema::from<wire::Actor>());
  require_same<EventRef>(capnp::Schema::from<wire::EventRef>());
}

TEST_CASE("host protocol structs and their schema agree field by field", "[schema]") {
  require_same<AgentHello>(capnp::Schema::from<wire::AgentHello>());
  require_same<ProgressReport>(capnp::Schema::from<wire::ProgressReport>());
  require_same<PrepareCommand>(capnp::Schema::from<wire::PrepareCommand>());
  require_same<PrepareReport>(capnp::Schema::from<wire::PrepareReport>());
}

TEST_CASE("the union lists the kinds in the order of the variant", "[schema]") {
  auto names = kind_names(std::make_index_sequence<std::variant_size_v<Event>>{});
  auto fields = event_union().getUnionFields();
  REQUIRE(fields.size() == names.size());
  for (auto field : fields) {
    uint16_t number = field.getProto().getDiscriminantValue();
    REQUIRE(number < names.size());
    CHECK(std::string(field.getProto().getName().cStr()) == names[number]);
  }
}

// A field that an older record lacks must read as what the C++ member would be.
TEST_CASE("defaults in the schema are the defaults in C++", "[schema]") {
  capnp::MallocMessageBuilder message;
  auto empty = message.initRoot<wire::JobSpec>().asReader();
  JobSpec expected;
  JobSpec read = decode<JobSpec>(empty);
  // Texts have no defaults on the wire: absent is empty.
  expected.devices.kind.clear();
  expected.checkpoint.entry.clear();
  expected.stop_signal.clear();
  CHECK(read == expected);

  auto check_event = [&]<class T>(std::type_identity<T>) {
    capnp::MallocMessageBuilder one;
    auto record = one.initRoot<wire::EventRecord>();
    Event absent = T{};
    encode(absent, record.getEvent());
    CHECK(decode<Event>(record.asReader().getEvent()) == absent);
  };
  check_event(std::type_identity<ev::IncidentOpened>{});
  check_event(std::type_identity<ev::GenerationStarted>{});
  check_event(std::type_identity<ev::ProgressSampled>{});
}

}  // namespace
}  // namespace regrow
