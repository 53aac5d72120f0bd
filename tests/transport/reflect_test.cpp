// Every struct that goes over the wire: schema equal to C++, and there and back without loss.
#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/debug.h>

#include <chrono>
#include <limits>
#include <random>

#include "journal/reflect_capnp.h"
#include "journal/reflect_json.h"
#include "tests/catch.h"
#include "transport/host_link.h"
#include "transport/schema/host_link.capnp.h"
#include "transport/schema/protocol.capnp.h"

using namespace regrow;

namespace {

// Fills any reflected value from a seed, empty vectors and extreme numbers included.
struct Filler {
  std::minstd_rand random;
  int depth = 0;

  template <class T>
  void fill(T& value) {
    using P = Plain<T>;
    P& raw = plain(value);
    if constexpr (std::is_same_v<P, bool>) {
      raw = random() % 2 != 0;
    } else if constexpr (NamedEnum<P>) {
      raw = static_cast<P>(random() % enum_names(P{}).size());
    } else if constexpr (std::is_integral_v<P>) {
      switch (random() % 4) {
        case 0:
          raw = 0;
          break;
        case 1:
          raw = std::numeric_limits<P>::max();
          break;
        case 2:
          raw = std::numeric_limits<P>::min();
          break;
        default:
          raw = static_cast<P>(random() * 2654435761u);
          break;
      }
    } else if constexpr (std::is_floating_point_v<P>) {
      raw = static_cast<P>(random()) / 7;
    } else if constexpr (std::is_same_v<P, std::string>) {
      raw.assign(random() % 20, 'a');
      for (auto& c : raw) c = static_cast<char>('a' + random() % 26);
    } else if constexpr (is_vector<P>) {
      raw.resize(random() % 4);
      for (auto& element : raw) fill(element);
    } else {
      P::visit_fields(raw, [this](const char*, auto& member) { fill(member); });
    }
  }
};

template <class T, class Schema>
void check() {
  INFO(T::kTypeName);
  CHECK(check_schema<T>(capnp::Schema::from<Schema>()) == std::vector<std::string>{});
  for (unsigned seed = 1; seed <= 20; ++seed) {
    T value{};
    Filler{std::minstd_rand(seed)}.fill(value);
    capnp::MallocMessageBuilder message;
    encode(value, message.initRoot<Schema>());
    auto words = capnp::messageToFlatArray(message);
    capnp::FlatArrayMessageReader reader(words);
    CHECK(decode<T>(reader.getRoot<Schema>()) == value);
    CHECK(from_json<T>(to_json(value)) == value);
    CHECK(from_json<T>(nlohmann::json::parse(dump_json(to_json(value)))) == value);
  }
  // The default too: C++ defaults that are not zero must come back.
  capnp::MallocMessageBuilder message;
  encode(T{}, message.initRoot<Schema>());
  CHECK(decode<T>(message.getRoot<Schema>().asReader()) == T{});
}

}  // namespace

TEST_CASE("every struct of job_spec.h goes there and back") {
  check<EnvVar, rpc::EnvVar>();
  check<DeviceRequest, rpc::DeviceRequest>();
  check<CheckpointRule, rpc::CheckpointRule>();
  check<Intensity, rpc::Intensity>();
  check<Timeouts, rpc::Timeouts>();
  check<Backoff, rpc::Backoff>();
  check<LogLimits, rpc::LogLimits>();
  check<JobSpec, rpc::JobSpec>();
}

TEST_CASE("every struct of host_protocol.h goes there and back") {
  check<Epoch, rpc::Epoch>();
  check<IncarnationKey, rpc::IncarnationKey>();
  check<SpawnCommand, rpc::SpawnCommand>();
  check<StopCommand, rpc::StopCommand>();
  check<RankReport, rpc::RankReport>();
  check<ProgressReport, rpc::ProgressReport>();
  check<PrepareCommand, rpc::PrepareCommand>();
  check<CheckpointFound, rpc::CheckpointFound>();
  check<PrepareReport, rpc::PrepareReport>();
  check<RegroupCommand, rpc::RegroupCommand>();
  check<JoinReport, rpc::JoinReport>();
  check<GoCommand, rpc::GoCommand>();
  check<DeviceReport, rpc::DeviceReport>();
  check<AgentHello, rpc::AgentHello>();
}

TEST_CASE("every struct of host_link.h goes there and back") {
  check<InventoryAnswer, rpc::InventoryAnswer>();
  check<Spawn, rpc::Spawn>();
  check<SetDeviceFault, rpc::SetDeviceFault>();
  check<CutLink, rpc::CutLink>();
  check<Acknowledge, rpc::Acknowledge>();
  check<SignalRank, rpc::SignalRank>();
  check<HostReports, rpc::HostReports>();
  check<LogQuery, rpc::LogQuery>();
  check<LogChunk, rpc::LogChunk>();
}

TEST_CASE("a variant goes there and back, and an unknown choice becomes monostate") {
  CHECK(check_schema<AgentCommand>(capnp::Schema::from<rpc::AgentCommand>()) ==
        std::vector<std::string>{});
  StopCommand stop;
  stop.key = {{1}, {2}, {3}};
  stop.signal = "INT";
  for (AgentCommand command : {AgentCommand{stop}, AgentCommand{CutLink{Duration::seconds(3)}},
                               AgentCommand{InventoryAnswer{{{{1}, {2}, {3}}}, {}}}}) {
    capnp::MallocMessageBuilder message;
    encode(command, message.initRoot<rpc::AgentCommand>());
    CHECK(decode<AgentCommand>(message.getRoot<rpc::AgentCommand>().asReader()) == command);
    CHECK(from_json<AgentCommand>(to_json(command)) == command);
  }
  CHECK(to_json(AgentCommand{stop})["kind"] == "stop_command");

  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<rpc::AgentCommand>();
  encode(AgentCommand{stop}, root);
  capnp::AnyStruct::Builder any(kj::mv(root));
  auto offset =
      capnp::Schema::from<rpc::AgentCommand>().getProto().getStruct().getDiscriminantOffset();
  any.getDataSection()[offset * 2] = 200;
  auto newer = decode<AgentCommand>(message.getRoot<rpc::AgentCommand>().asReader());
  CHECK(std::holds_alternative<std::monostate>(newer));
  using Strict = std::variant<StopCommand, CutLink>;
  CHECK_THROWS_WITH(decode<Strict>(message.getRoot<rpc::AgentCommand>().asReader()),
                    Catch::Contains("newer regrow"));
}

TEST_CASE("bytes that are not UTF-8 survive capnp and do not break JSON") {
  EnvVar odd{"NAME", std::string("a\0b\xff\xfe", 5), "recipe"};
  capnp::MallocMessageBuilder message;
  encode(odd, message.initRoot<rpc::EnvVar>());
  CHECK(decode<EnvVar>(message.getRoot<rpc::EnvVar>().asReader()) == odd);
  CHECK(dump_json(to_json(odd)).find("NAME") != std::string::npos);
}

TEST_CASE("a message of an older writer reads as zeros and empties") {
  // An empty struct: what a schema without any of our fields would have written.
  capnp::MallocMessageBuilder message;
  message.getRoot<capnp::AnyPointer>().initAsAnyStruct(0, 0);
  auto spec = decode<JobSpec>(message.getRoot<rpc::JobSpec>().asReader());
  CHECK(spec.name.empty());
  CHECK(spec.ranks == 0);
  CHECK(spec.checkpoint.directory.empty());
}

TEST_CASE("a list of something else where structs belong is an error, not a crash") {
  capnp::MallocMessageBuilder message;
  auto any = message.getRoot<capnp::AnyPointer>().initAsAnyStruct(0, 2);
  auto numbers = any.getPointerSection()[0].initAs<capnp::List<uint64_t>>(3);
  numbers.set(0, ~0ull);
  CHECK_THROWS_AS(decode<Acknowledge>(message.getRoot<rpc::Acknowledge>().asReader()),
                  kj::Exception);
}

namespace {
struct Misfit {
  std::string number;    // UInt64 in the schema
  int64_t start_id = 0;  // UInt64
  bool missing = false;
  REGROW_FIELDS(Misfit, number, start_id, missing)
};
struct Half {
  uint64_t number = 0;
  REGROW_FIELDS(Half, number)
};
}  // namespace

TEST_CASE("check_schema names every difference") {
  auto problems = check_schema<Misfit>(capnp::Schema::from<rpc::Epoch>());
  REQUIRE(problems.size() == 3);
  CHECK(problems[0] == "Misfit.number: a string in C++, UInt64 in the schema");
  CHECK(problems[1] == "Misfit.start_id: Int64 in C++, UInt64 in the schema");
  CHECK(problems[2] == "Misfit.missing: no field \"missing\" in the schema");
  CHECK(check_schema<Half>(capnp::Schema::from<rpc::Epoch>()) ==
        std::vector<std::string>{"Half: schema field \"startId\" has no member (extra)"});
  capnp::MallocMessageBuilder message;
  CHECK_THROWS_AS(encode(Misfit{}, message.initRoot<rpc::Epoch>()), std::logic_error);
  encode(Half{7}, message.initRoot<rpc::Epoch>());
  CHECK(message.getRoot<rpc::Epoch>().getNumber() == 7);
}

TEST_CASE("JSON that does not fit is refused with the field's name") {
  auto error = [](const char* text) -> std::string {
    try {
      from_json<JobSpec>(nlohmann::json::parse(text));
    } catch (const JsonError& e) {
      return e.what();
    }
    return "accepted";
  };
  CHECK(error(R"({"ranks": "four"})") == "ranks: expected a whole number, got string");
  CHECK(error(R"({"ranks": -1})") == "ranks: -1 is out of range");
  CHECK(error(R"({"ranks": 5000000000})") == "ranks: 5000000000 is out of range");
  CHECK(error(R"({"ranks": 1.5})") == "ranks: expected a whole number, got number");
  CHECK(error(R"({"checkpoint": {"storage": "tape"}})") ==
        "checkpoint.storage: unknown name \"tape\", known are: shared, host_local");
  CHECK(error(R"({"environment": [{"name": 3}]})") ==
        "environment[0].name: expected a string, got number");
  CHECK(error(R"({"command": "python"})") == "command: expected a list, got string");
  CHECK(error("[]") == "value: expected an object, got array");
  CHECK(error(R"({"no_such_field": 1, "ranks": 4})") == "accepted");
  CHECK_THROWS_WITH(from_json<AgentCommand>(nlohmann::json{{"kind", "dance"}}),
                    "value: unknown kind \"dance\"");
}

TEST_CASE("numbers in JSON are numbers and NaN is null") {
  ProgressReport progress;
  progress.loss = std::numeric_limits<double>::quiet_NaN();
  progress.step = std::numeric_limits<int64_t>::max();
  auto json = to_json(progress);
  CHECK(json["loss"].is_null());
  CHECK(json["step"] == std::numeric_limits<int64_t>::max());
  CHECK(std::isnan(from_json<ProgressReport>(json).loss));
  CHECK(to_json(Timeouts{})["stop_grace"] == 10000000);
}

TEST_CASE("decoding small structs is fast", "[.bench]") {
  ProgressReport progress;
  progress.key = {{7}, {3}, {2}};
  progress.step = 12345;
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<rpc::ProgressReport>();
  encode(progress, root);
  auto reader = root.asReader();
  constexpr int kRounds = 2000000;
  auto rate = [&](const char* what, auto f) {
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kRounds; ++i) f();
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    WARN(what << " " << static_cast<int64_t>(kRounds / took.count()) << " /s");
  };
  int64_t sum = 0;
  rate("decode", [&] { sum += decode<ProgressReport>(reader).step; });
  rate("encode", [&] {
    capnp::word scratch[64];
    memset(scratch, 0, sizeof scratch);
    capnp::MallocMessageBuilder fresh(kj::arrayPtr(scratch, 64));
    encode(progress, fresh.initRoot<rpc::ProgressReport>());
  });
  CHECK(sum == 12345ll * kRounds);
}
